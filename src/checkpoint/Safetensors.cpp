#include "checkpoint/Safetensors.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/SafetensorsHeader.h"

namespace adtrain {
namespace {

using nlohmann::json;

/// libtorch's types by their names in the format.
struct TypeName {
  const char* name;
  at::ScalarType type;
};
constexpr TypeName kTypes[] = {{"F64", at::kDouble},    {"F32", at::kFloat}, {"F16", at::kHalf},
                               {"BF16", at::kBFloat16}, {"I64", at::kLong},  {"I32", at::kInt},
                               {"I16", at::kShort},     {"I8", at::kChar},   {"U8", at::kByte},
                               {"BOOL", at::kBool}};

const char* type_name(const NamedTensor& named) {
  const auto found = std::ranges::find(kTypes, named.tensor.scalar_type(), &TypeName::type);
  if (found != std::end(kTypes)) return found->name;
  throw CheckpointError(
      fmt::format("'{}' is of type {}, which safetensors files cannot hold; convert it first", named.name,
                  c10::toString(named.tensor.scalar_type())));
}

at::Tensor copy_of(const SafetensorsHeader::Entry& entry, std::string_view data) {
  const auto type = std::ranges::find(kTypes, std::string_view(entry.dtype),
                                      [](const TypeName& known) { return std::string_view(known.name); });
  at::Tensor tensor = at::empty(entry.shape, type->type);
  if (entry.end > entry.begin) {
    std::memcpy(tensor.mutable_data_ptr(), data.data() + entry.begin, entry.end - entry.begin);
  }
  return tensor;
}

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
  if (!metadata.empty())
    entries.push_back(fmt::format("\"{}\":{}", SafetensorsHeader::kMetadata, json(metadata).dump()));
  size_t position = 0;
  for (const NamedTensor& named : ordered) {
    if (named.name == SafetensorsHeader::kMetadata || !names.insert(named.name).second) {
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
  std::string bytes(reinterpret_cast<const char*>(&length), SafetensorsHeader::kLengthBytes);
  bytes.reserve(SafetensorsHeader::kLengthBytes + length + position);
  bytes += header;
  for (const NamedTensor& named : ordered) {
    bytes.append(static_cast<const char*>(named.tensor.const_data_ptr()), named.tensor.nbytes());
  }
  return bytes;
}

std::optional<int64_t> SafetensorsFile::step() const {
  const auto found = metadata.find("step");
  if (found == metadata.end()) return std::nullopt;
  int64_t step = 0;
  const char* const last = found->second.data() + found->second.size();
  const auto [end, error] = std::from_chars(found->second.data(), last, step);
  const bool counts = error == std::errc() && end == last && step >= 0 && step <= Manifest::kLargestCount;
  return counts ? std::optional(step) : std::nullopt;
}

SafetensorsFile parse_safetensors(std::string_view bytes, const std::filesystem::path& path) {
  SafetensorsHeader header = SafetensorsHeader::parse(bytes, path);
  SafetensorsFile file;
  for (const SafetensorsHeader::Entry& entry : header.entries) {
    file.tensors.push_back({entry.name, copy_of(entry, header.data)});
  }
  file.metadata = std::move(header.metadata);
  return file;
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
