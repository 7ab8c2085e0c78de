#include "checkpoint/Manifest.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL  // the header alone, no library
#include <xxhash.h>

#include "base/Error.h"
#include "base/File.h"

namespace adtrain {
namespace {

constexpr int kFormatVersion = 1;

std::string checksum_of(std::string_view bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

}  // namespace

void Manifest::add_file(const std::string& name, std::string_view bytes) {
  files[name] = {bytes.size(), checksum_of(bytes)};
}

std::string Manifest::text() const {
  nlohmann::ordered_json json = {{"format_version", kFormatVersion}, {"step", step}, {"created", created}};
  for (const auto& [name, file] : files) json["files"][name] = {{"bytes", file.bytes}, {"xxh3", file.checksum}};
  json["state"] = state;
  return json.dump(2) + "\n";
}

Manifest Manifest::read(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kFileName;
  try {
    const nlohmann::json json = nlohmann::json::parse(read_file(path));
    if (const int version = json.at("format_version"); version != kFormatVersion) {
      throw CheckpointError(fmt::format("{} has format version {}; this build reads version {}: use the adtrain that wrote it",
                                        path.string(), version, kFormatVersion));
    }
    Manifest manifest;
    manifest.step = json.at("step");
    manifest.created = json.at("created");
    manifest.state = json.at("state");
    for (const auto& [name, file] : json.at("files").items()) manifest.files[name] = {file.at("bytes"), file.at("xxh3")};
    return manifest;
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(fmt::format("{} is no checkpoint: {}; expected a folder step-N with its {}", checkpoint.string(),
                                      error.what(), kFileName));
  } catch (const nlohmann::json::exception& error) {
    throw CheckpointError(fmt::format("{} is damaged: {}; expected the JSON that was written: use an older checkpoint",
                                      path.string(), error.what()));
  }
}

void Manifest::verify(const std::filesystem::path& checkpoint) const {
  for (const auto& [name, file] : files) {
    const std::filesystem::path path = checkpoint / name;
    std::string bytes;
    try {
      bytes = read_file(path);
    } catch (const std::filesystem::filesystem_error& error) {
      throw CheckpointError(fmt::format("{} is incomplete: {}", checkpoint.string(), error.what()));
    }
    if (bytes.size() != file.bytes) {
      throw CheckpointError(fmt::format("{} has {} bytes; the manifest says {}: it was truncated or replaced", path.string(),
                                        bytes.size(), file.bytes));
    }
    if (checksum_of(bytes) != file.checksum) {
      throw CheckpointError(fmt::format("{} has the checksum {}; the manifest says {}: its content is damaged", path.string(),
                                        checksum_of(bytes), file.checksum));
    }
  }
}

}  // namespace adtrain
