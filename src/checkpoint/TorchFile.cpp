#include "checkpoint/TorchFile.h"

#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;
using Kind = Pickle::Kind;
using Value = Pickle::Value;

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"torch.FloatStorage", at::kFloat}, {"torch.DoubleStorage", at::kDouble},
    {"torch.HalfStorage", at::kHalf},   {"torch.BFloat16Storage", at::kBFloat16},
    {"torch.LongStorage", at::kLong},   {"torch.IntStorage", at::kInt},
    {"torch.ShortStorage", at::kShort}, {"torch.CharStorage", at::kChar},
    {"torch.ByteStorage", at::kByte},   {"torch.BoolStorage", at::kBool}};

// Tensors may share storages, and values places, any number of times.
constexpr int64_t kMostUsesOfBytes = 4;
constexpr int64_t kMostPlainBytes = 16'000'000;

at::ScalarType type_of(std::string_view storage) {
  for (const auto& [name, type] : kTypes) {
    if (name == storage) return type;
  }
  return at::kFloat;  // the unpickler knows no others
}

/// The folder of the one entry `…/data.pkl`; "" where there is none.
std::string root_of(const ZipArchive& archive) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, bytes] : archive.entries()) {
    const size_t slash = name.find('/');
    if (slash != std::string::npos && name.substr(slash) == kPickle) return name.substr(0, slash + 1);
  }
  return "";
}

/// The elements of a storage that a view reaches, from the storage's first one on; none where that
/// overflows. A view without elements reaches none.
std::optional<int64_t> extent(int64_t offset, const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides) {
  int64_t last = offset;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    int64_t step = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &step) || __builtin_add_overflow(last, step, &last))
      return std::nullopt;
  }
  return last == std::numeric_limits<int64_t>::max() ? std::nullopt : std::optional(last + 1);
}

/// Their number; none where that overflows.
std::optional<int64_t> elements_of(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    empty = empty || extent == 0;
    if (extent > 0 && __builtin_mul_overflow(elements, extent, &elements)) return std::nullopt;
  }
  return empty ? 0 : elements;
}

}  // namespace

TorchFile::TorchFile(std::string_view bytes, std::filesystem::path path)
    : path_(std::move(path)),
      archive_(ZipArchive::parse(bytes, path_)),
      root_(root_of(archive_)),
      pickle_(Pickle::parse(archive_.content(root_ + "data.pkl"), path_)),
      most_bytes_(kMostUsesOfBytes * static_cast<int64_t>(bytes.size())) {
  const auto order = archive_.entries().find(root_ + "byteorder");
  if (order != archive_.entries().end() && order->second != "little")
    fail(fmt::format("its numbers are in the order '{}'; only 'little' is read", order->second));
}

void TorchFile::fail(const std::string& fault) const {
  throw CheckpointError(fmt::format("{}: {}", path_.string(), abridged(fault, 400)));
}

std::string_view TorchFile::storage(const std::string& key) {
  const std::string name = root_ + "data/" + key;
  if (checked_storages_.contains(name)) return archive_.entries().find(name)->second;
  checked_storages_.insert(name);
  return archive_.content(name);
}

at::Tensor TorchFile::tensor(const Value& value, const std::string& name) {
  if (value.kind != Kind::kTensor) fail(fmt::format("'{}' is no tensor; expected one", name));
  const Value& whole = pickle_.at(value.parts[0]);
  const at::ScalarType type = type_of(pickle_.at(whole.parts[0]).text);
  const auto counts = [&](Pickle::Index tuple) {
    std::vector<int64_t> list;
    for (const Pickle::Index part : pickle_.at(tuple).parts) list.push_back(pickle_.at(part).integer);
    return list;
  };
  const std::vector<int64_t> shape = counts(value.parts[1]), strides = counts(value.parts[2]);
  const std::string_view bytes = storage(whole.text);
  const int64_t element = static_cast<int64_t>(c10::elementSize(type));
  const int64_t held = static_cast<int64_t>(bytes.size()) / element;
  const std::optional<int64_t> reached = extent(value.integer, shape, strides), elements = elements_of(shape);
  // A view that repeats its elements would take more memory than the file has bytes.
  if (whole.integer > held || !reached || *reached > held || !elements || *elements > held) {
    fail(fmt::format("tensor '{}' of shape {} reaches beyond its storage of {} bytes: the file is damaged",
                     name, json(shape).dump(), bytes.size()));
  }
  if (*elements == 0) return at::empty(shape, type);
  const int64_t first = value.integer, size = (*reached - first) * element;
  most_bytes_ -= size;
  if (most_bytes_ < 0)
    fail("its tensors take several times as much memory as it has bytes: it is no checkpoint");
  // The bytes may lie anywhere; they are copied to an address that suits the type.
  at::Tensor view = at::empty({*reached - first}, type);
  std::memcpy(view.mutable_data_ptr(), bytes.data() + first * element, static_cast<size_t>(size));
  return at::as_strided(view, shape, strides).clone(at::MemoryFormat::Contiguous);
}

std::vector<NamedTensor> TorchFile::tensors(const Value& dict, const std::string& what) {
  if (dict.kind != Kind::kDict) fail(fmt::format("{} is no dict; expected one of tensors by name", what));
  std::vector<NamedTensor> tensors;
  std::set<std::string_view> names;
  for (size_t i = 0; i < dict.parts.size(); i += 2) {
    const Value& name = pickle_.at(dict.parts[i]);
    if (name.kind != Kind::kText)
      fail(fmt::format("{} has a key that is no text; expected tensors' names", what));
    if (!names.insert(name.text).second) fail(fmt::format("{} has two tensors '{}'", what, name.text));
    tensors.push_back({name.text, tensor(pickle_.at(dict.parts[i + 1]), name.text)});
  }
  return tensors;
}

json TorchFile::plain(const Value& value, const std::string& what) const {
  int64_t most_bytes = kMostPlainBytes;
  return plain(value, what, most_bytes);
}

/// The unpickler has bounded the depth.
json TorchFile::plain(const Value& value, const std::string& what, int64_t& most_bytes) const {
  most_bytes -= 1 + static_cast<int64_t>(value.text.size());
  if (most_bytes < 0) fail(fmt::format("{} holds more than {} bytes of values", what, kMostPlainBytes));
  switch (value.kind) {
    case Kind::kNone:
      return nullptr;
    case Kind::kBoolean:
      return value.integer != 0;
    case Kind::kInteger:
      return value.integer;
    case Kind::kReal:
      return value.real;
    case Kind::kText:
      return value.text;
    case Kind::kTuple:
    case Kind::kList: {
      json list = json::array();
      for (const Pickle::Index part : value.parts) list.push_back(plain(pickle_.at(part), what, most_bytes));
      return list;
    }
    case Kind::kDict: {
      json dict = json::object();
      for (size_t i = 0; i < value.parts.size(); i += 2) {
        const json key = plain(pickle_.at(value.parts[i]), what, most_bytes);
        dict[key.is_string() ? key.get<std::string>() : key.dump()] =
            plain(pickle_.at(value.parts[i + 1]), what, most_bytes);
      }
      return dict;
    }
    default:
      fail(fmt::format("{} holds something else than numbers, texts, lists and dicts", what));
  }
}

}  // namespace adtrain
