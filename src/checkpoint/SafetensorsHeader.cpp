#include "checkpoint/SafetensorsHeader.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;
using Entry = SafetensorsHeader::Entry;
using Dtype = SafetensorsHeader::Dtype;

constexpr uint64_t kLargestHeader = 100'000'000;
constexpr int kDeepestNesting = 3;        ///< header, entry, list
constexpr size_t kMostDimensions = 64;    ///< libtorch's own limit
constexpr size_t kMostFaultBytes = 1000;  ///< of an error message: a name may be as long as the header

const Dtype* find_dtype(const std::string& name) {
  const auto* const found =
      std::find_if(std::begin(SafetensorsHeader::kDtypes), std::end(SafetensorsHeader::kDtypes),
                   [&](const Dtype& known) { return name == known.name; });
  return found == std::end(SafetensorsHeader::kDtypes) ? nullptr : found;
}

bool is_list_of_counts(const json& list) {
  return list.is_array() &&
         std::ranges::all_of(list, [](const json& number) { return number.is_number_unsigned(); });
}

class Parser {
 public:
  Parser(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    const json parsed = parse_header(header_text());
    for (const auto& [name, value] : parsed.items()) {
      if (name == SafetensorsHeader::kMetadata) {
        header.metadata = parse_metadata(value);
      } else {
        header.entries.push_back(parse_entry(name, value));
      }
    }
    std::sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    check_cover(header.entries);
    header.data = bytes_;
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw CheckpointError(
        fmt::format("{} is not a valid safetensors file: {}; it is damaged or no such file: restore it or "
                    "use another checkpoint",
                    path_.string(), abridged(fault, kMostFaultBytes)));
  }

  /// Also advances `bytes_` to the data.
  std::string_view header_text() {
    constexpr size_t kLengthBytes = SafetensorsHeader::kLengthBytes;
    if (bytes_.size() < kLengthBytes) {
      fail(fmt::format("it has {} bytes, and the header's length alone takes {}", bytes_.size(),
                       kLengthBytes));
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    bytes_.remove_prefix(kLengthBytes);
    if (length > kLargestHeader) {
      fail(
          fmt::format("its header is said to have {} bytes, at most {} are allowed", length, kLargestHeader));
    }
    if (length > bytes_.size()) {
      fail(fmt::format("truncated: the header has {} bytes, only {} follow its length", length,
                       bytes_.size()));
    }
    const std::string_view text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    if (!text.starts_with('{')) fail("its header does not begin with '{'");
    return text;
  }

  json parse_header(std::string_view text) const {
    // The JSON library keeps one of several equal keys and accepts any nesting; both are refused here.
    std::vector<std::set<std::string>> names;
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > kDeepestNesting) fail("its header is nested too deeply");
      if (event == json::parse_event_t::object_start) names.emplace_back();
      if (event == json::parse_event_t::object_end) names.pop_back();
      if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) {
        fail(fmt::format("the key '{}' stands twice in its header", abridged(parsed.get<std::string>())));
      }
      return true;
    };
    try {
      return json::parse(text, check);
    } catch (const json::exception& error) {
      fail(fmt::format("its header is not JSON ({})", abridged(error.what())));
    }
  }

  std::map<std::string, std::string> parse_metadata(const json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("'{}' in __metadata__ is not a string", abridged(name)));
      metadata.emplace(name, text.get<std::string>());
    }
    return metadata;
  }

  Entry parse_entry(const std::string& name, const json& value) const {
    const auto member = [&](const char* key) -> const json& {
      if (!value.is_object() || !value.contains(key))
        fail(fmt::format("tensor '{}' has no {}", abridged(name), key));
      return value[key];
    };
    const json& dtype = member("dtype");
    const Dtype* known = dtype.is_string() ? find_dtype(dtype.get<std::string>()) : nullptr;
    if (known == nullptr) {
      fail(fmt::format(
          "tensor '{}' has the dtype {}; known are F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL",
          abridged(name), abridged(dtype.dump())));
    }
    const json& shape = member("shape");
    if (!is_list_of_counts(shape))
      fail(fmt::format("tensor '{}' has the shape {}", abridged(name), abridged(shape.dump())));
    const json& offsets = member("data_offsets");
    if (!is_list_of_counts(offsets) || offsets.size() != 2) {
      fail(fmt::format("tensor '{}' has the data_offsets {}", abridged(name), abridged(offsets.dump())));
    }
    Entry entry{name, known->name, {}, offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
    const uint64_t size = byte_size(shape, known->bytes, entry);
    if (entry.end < entry.begin || entry.end - entry.begin != size) {
      fail(fmt::format("tensor '{}' of shape {} and dtype {} takes {} bytes, its data_offsets are {}",
                       abridged(name), shape.dump(), known->name, size, offsets.dump()));
    }
    return entry;
  }

  /// Fills in the entry's shape. Its strides must not overflow even where an extent of 0 makes the tensor
  /// empty.
  uint64_t byte_size(const json& shape, int64_t element_bytes, Entry& entry) const {
    if (shape.size() > kMostDimensions) {
      fail(fmt::format("tensor '{}' has {} dimensions; at most {} are known", abridged(entry.name),
                       shape.size(), kMostDimensions));
    }
    int64_t extent_product = element_bytes;
    bool empty = false;
    for (const json& dimension : shape) {
      const auto extent = dimension.get<uint64_t>();
      empty = empty || extent == 0;
      const uint64_t factor = std::max<uint64_t>(extent, 1);
      if (factor > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / extent_product)) {
        fail(fmt::format("tensor '{}' has the shape {}, too large to address", abridged(entry.name),
                         shape.dump()));
      }
      extent_product *= static_cast<int64_t>(factor);
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    return empty ? 0 : static_cast<uint64_t>(extent_product);
  }

  /// The tensors' data must be contiguous, without gaps or overlaps, from the header's end to the file's.
  void check_cover(const std::vector<Entry>& entries) const {
    uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != position) {
        fail(fmt::format("{} before tensor '{}': its data begins at {}, the one before ends at {}",
                         entry.begin > position ? "a hole" : "an overlap", abridged(entry.name), entry.begin,
                         position));
      }
      position = entry.end;
    }
    if (position > bytes_.size()) {
      fail(fmt::format("truncated: tensors take {} bytes, only {} follow the header", position,
                       bytes_.size()));
    }
    if (position < bytes_.size()) {
      fail(fmt::format("tensors take {} bytes, but {} follow the header", position, bytes_.size()));
    }
  }

  std::string_view bytes_;
  const std::filesystem::path& path_;
};

}  // namespace

SafetensorsHeader SafetensorsHeader::parse(std::string_view bytes, const std::filesystem::path& path) {
  return Parser(bytes, path).parse();
}

}  // namespace adtrain
