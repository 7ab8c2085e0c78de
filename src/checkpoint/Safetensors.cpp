#include "checkpoint/Safetensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/Error.h"
#include "base/File.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;

struct TypeName {
  const char* name;
  at::ScalarType type;
};
constexpr TypeName kTypes[] = {{"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16},
                               {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
                               {"U8", at::kByte},    {"BOOL", at::kBool}};

const TypeName* find_type(std::string_view name) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return name == t.name; });
  return found == std::end(kTypes) ? nullptr : found;
}

const char* type_name(at::ScalarType type) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return type == t.type; });
  if (found == std::end(kTypes)) throw CheckpointError(fmt::format("safetensors cannot hold tensors of {}", c10::toString(type)));
  return found->name;
}

/// Where one tensor's data lies, relative to the end of the header.
struct Entry {
  std::string name;
  at::ScalarType type;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

/// Parses and checks the content of one file.
class Parser {
 public:
  Parser(const std::filesystem::path& path, const std::string& bytes) : path_(path), bytes_(bytes) {}

  SafetensorsFile parse() {
    SafetensorsFile file;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header().items()) {
      if (name == "__metadata__") {
        read_metadata(value, file.metadata);
      } else {
        entries.push_back(read_entry(name, value));
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    check_cover(entries);
    for (const Entry& entry : entries) file.tensors.push_back({entry.name, tensor_of(entry)});
    return file;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(fmt::format("{} is no valid safetensors file: {}; expected a file as it was written: restore it, or "
                                      "use another checkpoint",
                                      path_.string(), what));
  }

  json header() {
    if (bytes_.size() < kLengthBytes) fail(fmt::format("{} bytes, too short for the header's length", bytes_.size()));
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    if (length > kLargestHeader) fail(fmt::format("a header of {} bytes, at most {} are allowed", length, kLargestHeader));
    if (length > bytes_.size() - kLengthBytes) fail(fmt::format("a header of {} bytes in a file of {}", length, bytes_.size()));
    data_ = kLengthBytes + length;
    const std::string_view text(bytes_.data() + kLengthBytes, length);
    if (text.empty() || text.front() != '{') fail("a header that does not begin with '{'");
    // The JSON library keeps the last of equal keys; two tensors of one name must be refused instead.
    std::vector<std::set<std::string>> names;
    const auto callback = [&](int, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::object_start) names.emplace_back();
      if (event == json::parse_event_t::object_end) names.pop_back();
      if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) {
        fail(fmt::format("the name '{}' stands twice in the header", parsed.get<std::string>()));
      }
      return true;
    };
    try {
      json parsed = json::parse(text, callback);
      if (!parsed.is_object()) fail("a header that is no JSON object");
      return parsed;
    } catch (const json::exception& error) {
      fail(fmt::format("a header that is no JSON ({})", error.what()));
    }
  }

  void read_metadata(const json& value, std::map<std::string, std::string>& metadata) const {
    if (!value.is_object()) fail("__metadata__ is no object");
    for (const auto& [name, text] : value.items()) {
      if (!text.is_string()) fail(fmt::format("__metadata__ '{}' is no string", name));
      metadata.emplace(name, text.get<std::string>());
    }
  }

  Entry read_entry(const std::string& name, const json& value) const {
    const auto is_counts = [](const json& list) {
      return list.is_array() && std::all_of(list.begin(), list.end(), [](const json& n) { return n.is_number_unsigned(); });
    };
    if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
        !is_counts(value["shape"]) || !value.contains("data_offsets") || !is_counts(value["data_offsets"]) ||
        value["data_offsets"].size() != 2) {
      fail(fmt::format("tensor '{}' lacks a valid dtype, shape or data_offsets", name));
    }
    const TypeName* type = find_type(value["dtype"].get<std::string>());
    if (type == nullptr) fail(fmt::format("tensor '{}' has the unknown dtype {}", name, value["dtype"].dump()));
    Entry entry{name, type->type, {}, value["data_offsets"][0].get<uint64_t>(), value["data_offsets"][1].get<uint64_t>()};
    uint64_t size = c10::elementSize(type->type);
    for (const json& dimension : value["shape"]) {
      const auto extent = dimension.get<uint64_t>();
      if (extent != 0 && size > bytes_.size() / extent) fail(fmt::format("tensor '{}' is larger than the file", name));
      size *= extent;
      entry.shape.push_back(static_cast<int64_t>(extent));
    }
    if (entry.end < entry.begin || entry.end - entry.begin != size) {
      fail(fmt::format("tensor '{}' of {} bytes has the data_offsets {} to {}", name, size, entry.begin, entry.end));
    }
    return entry;
  }

  /// Data must follow one another without holes or overlaps, from the header's end to the file's.
  void check_cover(const std::vector<Entry>& entries) const {
    uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != position) {
        fail(fmt::format("tensor '{}' begins at {} where {} was expected: a hole or an overlap", entry.name, entry.begin, position));
      }
      position = entry.end;
    }
    if (data_ + position != bytes_.size()) {
      fail(fmt::format("tensors end at byte {}, the file at {}", data_ + position, bytes_.size()));
    }
  }

  at::Tensor tensor_of(const Entry& entry) const {
    at::Tensor tensor = at::empty(entry.shape, entry.type);
    if (tensor.numel() > 0) std::memcpy(tensor.data_ptr(), bytes_.data() + data_ + entry.begin, entry.end - entry.begin);
    return tensor;
  }

  const std::filesystem::path& path_;
  const std::string& bytes_;
  uint64_t data_ = 0;
};

}  // namespace

std::string safetensors_bytes(std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<NamedTensor> ordered;
  for (const NamedTensor& named : tensors) {
    ordered.push_back({named.name, named.tensor.detach().to(at::kCPU).contiguous()});
  }
  std::sort(ordered.begin(), ordered.end(), [](const NamedTensor& a, const NamedTensor& b) {
    return std::make_pair(-static_cast<int64_t>(a.tensor.element_size()), a.name) <
           std::make_pair(-static_cast<int64_t>(b.tensor.element_size()), b.name);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t position = 0;
  for (const NamedTensor& named : ordered) {
    const uint64_t end = position + named.tensor.nbytes();
    header[named.name] = {{"dtype", type_name(named.tensor.scalar_type())},
                          {"shape", named.tensor.sizes().vec()},
                          {"data_offsets", {position, end}}};
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  const uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kLengthBytes);
  bytes.reserve(kLengthBytes + length + position);
  bytes += text;
  for (const NamedTensor& named : ordered) {
    bytes.append(static_cast<const char*>(named.tensor.const_data_ptr()), named.tensor.nbytes());
  }
  return bytes;
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  std::string bytes;
  try {
    bytes = read_file(path);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(error.what());
  }
  return Parser(path, bytes).parse();
}

}  // namespace adtrain
