#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <zlib.h>

#include "base/Error.h"
#include "checkpoint/Manifest.h"
#include "fuzz/Targets.h"

namespace adtrain::fuzz {
namespace {

using nlohmann::json;

void read(std::string_view text) {
  try {
    const Manifest manifest = Manifest::parse(text, "manifest.json");
    require(manifest.step >= 0 && manifest.step <= Manifest::kLargestCount, "a step is a count");
    Manifest::count_in(manifest.state, "samples_drawn");
    require(Manifest::parse(manifest.text(), "manifest.json").step == manifest.step,
            "what was read can be written and read again");
  } catch (const CheckpointError&) {
  }
}

/// Chance would not find a right checksum.
std::string with_right_checksum(json manifest) {
  manifest.erase("manifest_crc32");
  const std::string text = manifest.dump();
  manifest["manifest_crc32"] =
      fmt::format("{:08x}", crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
  return manifest.dump();
}

}  // namespace

void manifest(std::string_view bytes) {
  read(bytes);
  const auto shallow = [](int depth, json::parse_event_t, const json&) { return depth < 100; };
  const json parsed = json::parse(bytes, shallow, /*allow_exceptions=*/false);
  if (parsed.is_object()) read(with_right_checksum(parsed));
}

}  // namespace adtrain::fuzz
