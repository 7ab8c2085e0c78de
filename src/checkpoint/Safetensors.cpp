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

at::ScalarType type_of(const SafetensorsHeader::Entry& entry) {
  return std::ranges::find(kTypes, std::string_view(entry.dtype),
                           [](const TypeName& known) { return std::string_view(known.name); })
      ->type;
}

at::Tensor copy_of(const SafetensorsHeader::Entry& entry, std::string_view data) {
  at::Tensor tensor = at::empty(entry.shape, type_of(entry));
  if (entry.end > entry.begin) {
    std::memcpy(tensor.mutable_data_ptr(), data.data() + entry.begin, entry.end - entry.begin);
  }
  return tensor;
}

/// A tensor at the place of its data in a file's content.
at::Tensor shared_part(const SafetensorsHeader::Entry& entry, std::string_view data,
                       const std::shared_ptr<char[]>& memory) {
  const auto first = static_cast<size_t>(data.data() - memory.get()) + entry.begin;
  const size_t element = c10::elementSize(type_of(entry));
  if (entry.end == entry.begin || first % element != 0) return copy_of(entry, data);
  return at::from_blob(
      memory.get() + first, entry.shape, [memory](void*) {}, at::TensorOptions(type_of(entry)));
}

template <class TensorOf>
SafetensorsFile parsed(std::string_view bytes, const std::filesystem::path& path, const TensorOf& tensor_of) {
  SafetensorsHeader header = SafetensorsHeader::parse(bytes, path);
  SafetensorsFile file;
  for (const SafetensorsHeader::Entry& entry : header.entries)
    file.tensors.push_back({entry.name, tensor_of(entry, header.data)});
  file.metadata = std::move(header.metadata);
  return file;
}

std::vector<NamedTensor> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<NamedTensor> ordered(tensors.begin(), tensors.end());
  std::ranges::sort(ordered, [](const NamedTensor& a, const NamedTensor& b) {
    const size_t size_a = a.tensor.element_size(), size_b = b.tensor.element_size();
    return std::tie(size_b, a.name) < std::tie(size_a, b.name);
  });
  return ordered;
}

/// The header of tensors in the order of the file, with its length before it.
std::string header_bytes(std::span<const NamedTensor> ordered,
                         const std::map<std::string, std::string>& metadata) {
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
  return std::string(reinterpret_cast<const char*>(&length), SafetensorsHeader::kLengthBytes) + header;
}

}  // namespace

void stream_safetensors(std::span<const NamedTensor> tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::function<void(std::string_view)>& sink) {
  const std::vector<NamedTensor> ordered = in_file_order(tensors);
  sink(header_bytes(ordered, metadata));
  for (const NamedTensor& named : ordered) {
    const at::Tensor on_cpu = named.tensor.detach().to(at::kCPU).contiguous();
    sink({static_cast<const char*>(on_cpu.const_data_ptr()), on_cpu.nbytes()});
  }
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
  return parsed(bytes, path, copy_of);
}

SafetensorsFile parse_safetensors(const FileContent& content, const std::filesystem::path& path) {
  return parsed(content.bytes(), path, [&](const SafetensorsHeader::Entry& entry, std::string_view data) {
    return shared_part(entry, data, content.memory());
  });
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  try {
    return parse_safetensors(FileContent(path), path);
  } catch (const std::filesystem::filesystem_error& error) {
    throw CheckpointError(fmt::format("{}; expected a safetensors file there", error.what()));
  }
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, [&](FileWriter& file) {
    stream_safetensors(tensors, metadata, [&](std::string_view bytes) { file.append(bytes); });
  });
}

}  // namespace adtrain
