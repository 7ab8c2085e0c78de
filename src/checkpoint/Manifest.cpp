#include "checkpoint/Manifest.h"

#include <fmt/format.h>
#include <zlib.h>

#include "base/Error.h"
#include "base/File.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr const char* kOwnChecksum = "manifest_crc32";

std::string checksum_of(std::string_view bytes) {
  return fmt::format("{:08x}", crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// The manifest's own checksum: over its JSON without that entry, keys sorted, no white space.
std::string own_checksum(json manifest) {
  manifest.erase(kOwnChecksum);
  return checksum_of(manifest.dump());
}

Manifest from_json(const json& text) {
  Manifest manifest;
  text.at("step").get_to(manifest.step);
  text.at("created").get_to(manifest.created);
  manifest.state = text.at("state");
  for (const auto& [name, file] : text.at("files").items()) {
    manifest.files[name] = {file.at("bytes").get<uint64_t>(), file.at("crc32").get<std::string>()};
  }
  return manifest;
}

}  // namespace

void Manifest::add_file(const std::string& name, std::string_view bytes) {
  files[name] = {bytes.size(), checksum_of(bytes)};
}

std::string Manifest::text() const {
  json text = {{"format_version", kFormatVersion}, {"step", step}, {"created", created}, {"state", state}};
  for (const auto& [name, file] : files) text["files"][name] = {{"bytes", file.bytes}, {"crc32", file.crc32}};
  text[kOwnChecksum] = own_checksum(json::parse(text.dump()));  // as a reader will see it
  return text.dump(2) + "\n";
}

Manifest Manifest::read(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kFileName;
  try {
    const json text = json::parse(read_file(path));
    if (const int version = text.at("format_version"); version != kFormatVersion) {
      throw CheckpointError(
          fmt::format("{} has format version {}; this build reads version {}: use the adtrain that wrote it",
                      path.string(), version, kFormatVersion));
    }
    if (const std::string found = own_checksum(text); text.at(kOwnChecksum) != found) {
      throw CheckpointError(
          fmt::format("{} has the checksum {}; it says {} itself: it is damaged, use another checkpoint",
                      path.string(), found, text.at(kOwnChecksum).dump()));
    }
    return from_json(text);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(
        fmt::format("{} is not a complete checkpoint ({}); expected a folder step-N that holds {}",
                    checkpoint.string(), error.what(), kFileName));
  } catch (const json::exception& error) {
    throw CheckpointError(
        fmt::format("{} is damaged ({}); expected the JSON that was written: use another checkpoint",
                    path.string(), error.what()));
  }
}

std::string Manifest::read_verified(const std::filesystem::path& checkpoint, const std::string& name) const {
  const std::filesystem::path path = checkpoint / name;
  const auto listed = files.find(name);
  if (listed == files.end()) {
    throw CheckpointError(fmt::format("the {} of {} lists no {}; it is no checkpoint of this program",
                                      kFileName, checkpoint.string(), name));
  }
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(fmt::format("{} is incomplete: {}", checkpoint.string(), error.what()));
  }
  if (bytes.size() != listed->second.bytes) {
    throw CheckpointError(fmt::format("{} has {} bytes; the manifest says {}: it was truncated or replaced",
                                      path.string(), bytes.size(), listed->second.bytes));
  }
  if (const std::string found = checksum_of(bytes); found != listed->second.crc32) {
    throw CheckpointError(fmt::format("{} has the checksum {}; the manifest says {}: its content is damaged",
                                      path.string(), found, listed->second.crc32));
  }
  return bytes;
}

}  // namespace adtrain
