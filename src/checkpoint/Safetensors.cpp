#include "checkpoint/Safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <tuple>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;
constexpr int kDeepestNesting = 3;  ///< header, entry, list
constexpr const char* kMetadata = "__metadata__";

struct TypeName {
  const char* name;
  at::ScalarType type;
};
constexpr TypeName kTypes[] = {{"F64", at::kDouble},    {"F32", at::kFloat}, {"F16", at::kHalf},
                               {"BF16", at::kBFloat16}, {"I64", at::kLong},  {"I32", at::kInt},
                               {"I16", at::kShort},     {"I8", at::kChar},   {"U8", at::kByte},
                               {"BOOL", at::kBool}};

const TypeName* find_type(std::string_view name) {
  const auto found =
      std::ranges::find(kTypes, name, [](const TypeName& known) { return std::string_view(known.name); });
  return found == std::end(kTypes) ? nullptr : found;
}

const char* type_name(const NamedTensor& named) {
  const auto found = std::ranges::find(kTypes, named.tensor.scalar_type(), &TypeName::type);
  if (found != std::end(kTypes)) return found->name;
  throw CheckpointError(
      fmt::format("'{}' is of type {}, which safetensors files cannot hold; convert it first", named.name,
                  c10::toString(named.tensor.scalar_type())));
}

/// Where one tensor's data lies, in bytes behind the header.
struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

bool is_list_of_counts(const json& list) {
  return list.is_array() &&
         std::ranges::all_of(list, [](const json& number) { return number.is_number_unsigned(); });
}

class Parser {
 public:
  Parser(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  SafetensorsFile parse() {
    SafetensorsFile file;
    std::vector<Entry> entries;
    const json header = parse_header(header_text());
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) {
        file.metadata = parse_metadata(value);
      } else {
        entries.push_back(parse_entry(name, value));
      }
    }
    std::ranges::sort(entries, {},
                      [](const Entry& entry) { return std::tie(entry.begin, entry.end, entry.name); });
    check_cover(entries);
    for (const Entry& entry : entries) file.tensors.push_back({entry.name, copy_of(entry)});
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw CheckpointError(
        fmt::format("{} is not a valid safetensors file: {}; it is damaged or no such file: restore it or "
                    "use another checkpoint",
                    path_.string(), fault));
  }

  /// Also moves `bytes_` on to the data.
  std::string_view header_text() {
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
    // The JSON library keeps one of equal keys and follows any nesting: neither may pass here.
    std::vector<std::set<std::string>> names;
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > kDeepestNesting) fail("its header is nested too deeply");
      if (event == json::parse_event_t::object_start) names.emplace_back();
      if (event == json::parse_event_t::object_end) names.pop_back();
      if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) {
        fail(fmt::format("the key '{}' stands twice in its header", parsed.get<std::string>()));
      }
      return true;
    };
    try {
      return json::parse(text, check);
    } catch (const json::exception& error) {
      fail(fmt::format("its header is not JSON ({})", error.what()));
    }
  }

  std::map<std::string, std::string> parse_metadata(const json& value) const {
    if (!value.is_object()) fail("__metadata__ is not an object");
    std::map<std::string, std::string> metadata;
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("'{}' in __metadata__ is not a string", name));
      metadata.emplace(name, text.get<std::string>());
    }
    return metadata;
  }

  Entry parse_entry(const std::string& name, const json& value) const {
    const auto member = [&](const char* key) -> const json& {
      if (!value.is_object() || !value.contains(key)) fail(fmt::format("tensor '{}' has no {}", name, key));
      return value[key];
    };
    const json& dtype = member("dtype");
    const TypeName* known = dtype.is_string() ? find_type(dtype.get<std::string>()) : nullptr;
    if (known == nullptr) {
      fail(fmt::format(
          "tensor '{}' has the dtype {}; known are F64, F32, F16, BF16, I64, I32, I16, I8, U8 and BOOL", name,
          dtype.dump()));
    }
    const json& shape = member("shape");
    if (!is_list_of_counts(shape)) fail(fmt::format("tensor '{}' has the shape {}", name, shape.dump()));
    const json& offsets = member("data_offsets");
    if (!is_list_of_counts(offsets) || offsets.size() != 2) {
      fail(fmt::format("tensor '{}' has the data_offsets {}", name, offsets.dump()));
    }
    Entry entry{name, known->type, {}, offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
    const uint64_t size = byte_size(name, shape, entry);
    if (entry.end < entry.begin || entry.end - entry.begin != size) {
      fail(fmt::format("tensor '{}' of shape {} and dtype {} takes {} bytes, its data_offsets are {}", name,
                       shape.dump(), known->name, size, offsets.dump()));
    }
    return entry;
  }

  /// Fills in the entry's shape. Its strides must not overflow even where an extent of 0 makes the tensor
  /// empty.
  uint64_t byte_size(const std::string& name, const json& shape, Entry& entry) const {
    int64_t extent_product = static_cast<int64_t>(c10::elementSize(entry.type));
    bool empty = false;
    for (const json& dimension : shape) {
      const auto extent = dimension.get<uint64_t>();
      empty = empty || extent == 0;
      const uint64_t factor = std::max<uint64_t>(extent, 1);
      if (factor > static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / extent_product)) {
        fail(fmt::format("tensor '{}' has the shape {}, too large to address", name, shape.dump()));
      }
      extent_product *= static_cast<int64_t>(factor);
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    return empty ? 0 : static_cast<uint64_t>(extent_product);
  }

  /// Data must follow one another without holes or overlaps, from the header's end to the file's.
  void check_cover(const std::vector<Entry>& entries) const {
    uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != position) {
        fail(fmt::format("{} before tensor '{}': its data begins at {}, the one before ends at {}",
                         entry.begin > position ? "a hole" : "an overlap", entry.name, entry.begin,
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

  at::Tensor copy_of(const Entry& entry) const {
    at::Tensor tensor = at::empty(entry.shape, entry.type);
    if (entry.end > entry.begin) {
      std::memcpy(tensor.mutable_data_ptr(), bytes_.data() + entry.begin, entry.end - entry.begin);
    }
    return tensor;
  }

  std::string_view bytes_;
  const std::filesystem::path& path_;
};

/// On the CPU and contiguous, in the order of the file.
std::vector<NamedTensor> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> ordered;
  for (const NamedTensor& named : tensors) {
    ordered.push_back({named.name, named.tensor.detach().to(at::kCPU).contiguous()});
  }
  std::ranges::sort(ordered, [](const NamedTensor& a, const NamedTensor& b) {
    const size_t size_a = a.tensor.element_size(), size_b = b.tensor.element_size();
    return std::tie(size_b, a.name) < std::tie(size_a, b.name);
  });
  return ordered;
}

}  // namespace

std::string safetensors_bytes(std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  const std::vector<NamedTensor> ordered = in_file_order(tensors);
  std::set<std::string> names;
  std::vector<std::string> entries;
  if (!metadata.empty()) entries.push_back(fmt::format("\"{}\":{}", kMetadata, json(metadata).dump()));
  size_t position = 0;
  for (const NamedTensor& named : ordered) {
    if (named.name == kMetadata || !names.insert(named.name).second) {
      throw CheckpointError(
          fmt::format("two tensors are called '{}'; each needs a name of its own", named.name));
    }
    const size_t end = position + named.tensor.nbytes();
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                                  json(named.name).dump(), type_name(named),
                                  json(named.tensor.sizes().vec()).dump(), position, end));
    position = end;
  }
  std::string header = fmt::format("{{{}}}", join(entries, ","));
  header.resize((header.size() + 7) / 8 * 8, ' ');

  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  bytes.reserve(kLengthBytes + length + position);
  bytes += header;
  for (const NamedTensor& named : ordered) {
    bytes.append(static_cast<const char*>(named.tensor.const_data_ptr()), named.tensor.nbytes());
  }
  return bytes;
}

SafetensorsFile parse_safetensors(std::string_view bytes, const std::filesystem::path& path) {
  return Parser(bytes, path).parse();
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(fmt::format("{}; expected a safetensors file there", error.what()));
  }
  return parse_safetensors(bytes, path);
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, safetensors_bytes(tensors, metadata));
}

}  // namespace adtrain
