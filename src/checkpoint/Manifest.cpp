#include "checkpoint/Manifest.h"

#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr int kDeepestNesting = 32;  ///< the JSON library copies and writes by recursion
constexpr const char* kOwnChecksum = "manifest_crc32";

/// The manifest's own checksum: over its JSON without that entry, keys sorted, no white space.
std::string own_checksum(json manifest) {
  manifest.erase(kOwnChecksum);
  return checksum_text(manifest.dump());
}

/// Why a text is not a manifest of this program.
struct Damage {
  std::string what;
};

json parse_json(std::string_view text) {
  const auto check = [](int depth, json::parse_event_t, const json&) {
    if (depth > kDeepestNesting) throw Damage{"it is nested too deeply"};
    return true;
  };
  return json::parse(text, check);
}

int64_t expected_count(const json& object, const char* name) {
  if (const std::optional<int64_t> count = Manifest::count_in(object, name)) return *count;
  throw Damage{fmt::format("'{}' is no whole number from 0 to {}", name, Manifest::kLargestCount)};
}

Manifest from_json(const json& text) {
  Manifest manifest;
  manifest.step = expected_count(text, "step");
  text.at("created").get_to(manifest.created);
  manifest.state = text.at("state");
  for (const auto& [name, file] : text.at("files").items()) {
    manifest.files[name] = {static_cast<uint64_t>(expected_count(file, "bytes")),
                            file.at("crc32").get<std::string>()};
  }
  return manifest;
}

CheckpointError damaged(const std::filesystem::path& path, const std::string& what) {
  return CheckpointError(
      fmt::format("{} is damaged ({}); expected the JSON that was written: use another checkpoint",
                  path.string(), abridged(what)));
}

CheckpointError incomplete(const std::filesystem::path& checkpoint,
                           const std::filesystem::filesystem_error& error) {
  return CheckpointError(fmt::format("{} is incomplete: {}", checkpoint.string(), error.what()));
}

void expect_checksum(const Manifest::File& listed, uint32_t found, const std::filesystem::path& path) {
  if (checksum_text(found) == listed.crc32) return;
  throw CheckpointError(fmt::format("{} has the checksum {}; the manifest says {}: its content is damaged",
                                    path.string(), checksum_text(found), listed.crc32));
}

}  // namespace

std::string Manifest::text() const {
  json text = {{"format_version", kFormatVersion}, {"step", step}, {"created", created}, {"state", state}};
  for (const auto& [name, file] : files) text["files"][name] = {{"bytes", file.bytes}, {"crc32", file.crc32}};
  text[kOwnChecksum] = own_checksum(json::parse(text.dump()));  // as a reader will see it
  return text.dump(2) + "\n";
}

std::optional<int64_t> Manifest::count_in(const json& object, const std::string& name) {
  if (!object.is_object() || !object.contains(name)) return std::nullopt;
  const json& found = object.at(name);
  if (!found.is_number_integer()) return std::nullopt;
  // As a signed number, one of 2^63 or more is negative.
  const auto count = found.get<int64_t>();
  return count < 0 || count > kLargestCount ? std::nullopt : std::optional(count);
}

Manifest Manifest::parse(std::string_view text, const std::filesystem::path& path) {
  try {
    const json parsed = parse_json(text);
    if (const int64_t version = expected_count(parsed, "format_version"); version != kFormatVersion) {
      throw CheckpointError(
          fmt::format("{} has format version {}; this build reads version {}: use the adtrain that wrote it",
                      path.string(), version, kFormatVersion));
    }
    if (const std::string found = own_checksum(parsed); parsed.at(kOwnChecksum) != found) {
      throw CheckpointError(
          fmt::format("{} has the checksum {}; it says {} itself: it is damaged, use another checkpoint",
                      path.string(), found, abridged(parsed.at(kOwnChecksum).dump())));
    }
    return from_json(parsed);
  } catch (const Damage& damage) {
    throw damaged(path, damage.what);
  } catch (const json::exception& error) {
    throw damaged(path, error.what());
  }
}

std::optional<int64_t> Manifest::step_in_name(const std::filesystem::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  int64_t number = 0;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kFolderPrefix.size(), last, number);
  const bool is_step = error == std::errc() && end == last && number >= 0;
  return is_step && name == fmt::format("{}{}", kFolderPrefix, number) ? std::optional(number) : std::nullopt;
}

std::string Manifest::fault_of_name(const std::filesystem::path& checkpoint) const {
  std::filesystem::path folder = checkpoint;
  if (!step_in_name(folder)) {
    std::error_code unreadable;
    folder = std::filesystem::canonical(checkpoint, unreadable);  // of a link, what it points to
  }
  const std::optional<int64_t> named = step_in_name(folder);
  if (!named || *named == step) return "";
  return fmt::format(
      "{} is named after step {}, and its {} says step {}; expected the same step in both, so it is not "
      "used: rename it back to {}{}, or move it out of {}",
      folder.string(), *named, kFileName, step, kFolderPrefix, step, folder.parent_path().string());
}

Manifest Manifest::read(const std::filesystem::path& checkpoint) {
  Manifest manifest = read_under_any_name(checkpoint);
  if (const std::string fault = manifest.fault_of_name(checkpoint); !fault.empty())
    throw CheckpointError(fault);
  return manifest;
}

Manifest Manifest::read_under_any_name(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kFileName;
  try {
    if (const uint64_t bytes = std::filesystem::file_size(path); bytes > kMostBytes) {
      throw damaged(path,
                    fmt::format("it has {}; at most {} are read", human_bytes(static_cast<double>(bytes)),
                                human_bytes(static_cast<double>(kMostBytes))));
    }
    return parse(read_file(path), path);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(
        fmt::format("{} is not a complete checkpoint ({}); expected a folder step-N that holds {}",
                    checkpoint.string(), error.what(), kFileName));
  }
}

const Manifest::File& Manifest::of_this_size(const std::filesystem::path& checkpoint,
                                             const std::string& name) const {
  const std::filesystem::path path = checkpoint / name;
  const auto listed = files.find(name);
  if (listed == files.end()) {
    throw CheckpointError(fmt::format("the {} of {} lists no {}; it is no checkpoint of this program",
                                      kFileName, checkpoint.string(), name));
  }
  if (const uint64_t size = std::filesystem::file_size(path); size != listed->second.bytes) {
    throw CheckpointError(fmt::format("{} has {} bytes; the manifest says {}: it was truncated or replaced",
                                      path.string(), size, listed->second.bytes));
  }
  return listed->second;
}

FileContent Manifest::read_verified(const std::filesystem::path& checkpoint, const std::string& name) const {
  try {
    // The size is compared before memory is allocated for the content.
    const File& listed = of_this_size(checkpoint, name);
    FileContent content(checkpoint / name);
    expect_checksum(listed, content.checksum(), checkpoint / name);
    return content;
  } catch (const std::filesystem::filesystem_error& error) {
    throw incomplete(checkpoint, error);
  }
}

void Manifest::verify(const std::filesystem::path& checkpoint, const std::string& name) const {
  try {
    const File& listed = of_this_size(checkpoint, name);
    expect_checksum(listed, checksum_of_file(checkpoint / name), checkpoint / name);
  } catch (const std::filesystem::filesystem_error& error) {
    throw incomplete(checkpoint, error);
  }
}

}  // namespace adtrain
