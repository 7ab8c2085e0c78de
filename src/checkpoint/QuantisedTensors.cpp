#include "checkpoint/QuantisedTensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "kernels/quantised/Quantise.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr const char* kState = ".quant_state.bitsandbytes__";
constexpr const char* kScales = "SCB";

/// "X.SCB" of "X.weight", and of "X_weight" "X_SCB".
std::string beside(const std::string& weight, const std::string& name) {
  constexpr std::string_view kWeight = "weight";
  const bool ends = weight.ends_with(kWeight);
  return weight.substr(0, weight.size() - (ends ? kWeight.size() : 0)) + name;
}

at::Tensor as_bytes(const std::string& text) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

/// What the matrix is beside its tensors, in the letters in which Python's json writes it.
std::string state_text(const QuantisedMatrix& matrix, const char* type) {
  std::string text =
      fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "float32", "shape": [{}, {}])", type,
                  matrix.block_size, matrix.out_features, matrix.in_features);
  if (matrix.nested()) {
    text += fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": )",
                        matrix.nested_block_size);
    const std::string offset = fmt::format("{}", static_cast<double>(matrix.nested_offset));
    text += offset.find_first_of(".en") == std::string::npos ? offset + ".0" : offset;
  }
  return text + "}";
}

/// Puts a file's matrices together.
class Reader {
 public:
  Reader(std::vector<NamedTensor> tensors, const std::filesystem::path& file) : file_(file) {
    for (NamedTensor& named : tensors) {
      order_.push_back(named.name);
      tensors_.emplace(std::move(named.name), std::move(named.tensor));
    }
  }

  QuantisedTensors read() {
    QuantisedTensors read;
    for (const std::string& name : order_) {
      if (const size_t state = name.find(kState); state != std::string::npos) {
        const std::string weight = name.substr(0, state);
        read.matrices.emplace(weight, of_4_bits(weight, name));
      } else if (name.ends_with(kScales)) {
        const std::string weight = name.substr(0, name.size() - std::strlen(kScales)) + "weight";
        read.matrices.emplace(weight, of_8_bits(weight, name));
      }
    }
    for (const std::string& name : order_) {
      if (!taken_.contains(name)) read.others.push_back({name, tensors_.at(name)});
    }
    return read;
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& fault) const {
    throw CheckpointError(fmt::format("{}: '{}' {}: quantise the weights anew, with bitsandbytes' own form",
                                      file_.string(), name, fault));
  }

  at::Tensor take(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) refuse(name, "is missing, which quantised weights have");
    taken_.insert(name);
    return found->second;
  }

  /// As `like` is, of a matrix of the shape that the file says.
  at::Tensor take_like(const std::string& name, const at::Tensor& like) {
    const at::Tensor found = take(name);
    if (found.scalar_type() != like.scalar_type() || found.numel() != like.numel()) {
      refuse(name, fmt::format("has {} values of {}, expected {} of {}", found.numel(),
                               c10::toString(found.scalar_type()), like.numel(),
                               c10::toString(like.scalar_type())));
    }
    return found.reshape(like.sizes()).contiguous();
  }

  json state_of(const std::string& name) {
    const at::Tensor bytes = take(name).contiguous();
    if (bytes.scalar_type() != at::kByte) refuse(name, "is no text in bytes");
    const auto* const text = static_cast<const char*>(bytes.const_data_ptr());
    json state = json::parse(text, text + bytes.numel(), nullptr, /*allow_exceptions=*/false);
    const json shape = state.is_object() ? state.value("shape", json()) : json();
    const bool good =
        shape.is_array() && shape.size() == 2 && std::ranges::all_of(shape, [](const json& extent) {
          return extent.is_number_unsigned() && extent.get<uint64_t>() > 0 &&
                 extent.get<uint64_t>() < (uint64_t{1} << 31);
        });
    if (!good) refuse(name, "says no shape of two extents");
    return state;
  }

  QuantisedMatrix of_4_bits(const std::string& weight, const std::string& state_name) {
    const json state = state_of(state_name);
    const std::string type = state_name.substr(weight.size() + std::strlen(kState));
    if (type != "nf4" && type != "fp4") refuse(state_name, "is of codes that are neither nf4 nor fp4");
    const bool nested = state.contains("nested_offset");
    const auto number = [&](const char* key) {
      return state.contains(key) && state[key].is_number() ? state[key].get<double>() : NAN;
    };
    const QuantisedMatrix like =
        kernels::quantised_shape(type == "nf4" ? QuantisedCode::nf4 : QuantisedCode::fp4, nested,
                                 state["shape"][0], state["shape"][1]);
    if (number("blocksize") != static_cast<double>(like.block_size))
      refuse(state_name, fmt::format("has blocks other than of {}, the ones that are read", like.block_size));
    QuantisedMatrix matrix = like;
    matrix.codes = take_like(weight, like.codes);
    matrix.absmax = take_like(weight + ".absmax", like.absmax);
    matrix.code_map = take_like(weight + ".quant_map", like.code_map);
    if (!nested) return matrix;
    if (number("nested_blocksize") != static_cast<double>(like.nested_block_size) ||
        !std::isfinite(number("nested_offset"))) {
      refuse(state_name,
             fmt::format("says no offset, or nested blocks other than of {}", like.nested_block_size));
    }
    matrix.nested_absmax = take_like(weight + ".nested_absmax", like.nested_absmax);
    matrix.nested_map = take_like(weight + ".nested_quant_map", like.nested_map);
    matrix.nested_offset = static_cast<float>(number("nested_offset"));
    return matrix;
  }

  QuantisedMatrix of_8_bits(const std::string& weight, const std::string& scales) {
    const at::Tensor codes = take(weight);
    if (codes.scalar_type() != at::kChar || codes.dim() != 2)
      refuse(weight, "is no matrix of signed bytes, though there are scales for one");
    const std::string format = beside(weight, "weight_format");
    if (tensors_.contains(format) && take(format).to(at::kLong).sum().item<int64_t>() != 0)
      refuse(format, "says another order of weights than by row");
    QuantisedMatrix matrix =
        kernels::quantised_shape(QuantisedCode::int8, false, codes.size(0), codes.size(1));
    matrix.codes = codes.contiguous();
    matrix.absmax = take_like(scales, matrix.absmax);
    return matrix;
  }

  std::filesystem::path file_;
  std::vector<std::string> order_;
  std::map<std::string, at::Tensor> tensors_;
  std::set<std::string> taken_;
};

}  // namespace

std::vector<NamedTensor> quantised_tensors(const std::string& weight, const QuantisedMatrix& matrix) {
  if (matrix.code == QuantisedCode::int8) {
    return {{weight, matrix.codes},
            {beside(weight, kScales), matrix.absmax},
            {beside(weight, "weight_format"), at::zeros({}, at::kByte)}};
  }
  const char* const type = matrix.code == QuantisedCode::nf4 ? "nf4" : "fp4";
  std::vector<NamedTensor> tensors = {
      {weight, matrix.codes}, {weight + ".absmax", matrix.absmax}, {weight + ".quant_map", matrix.code_map}};
  if (matrix.nested()) {
    tensors.push_back({weight + ".nested_absmax", matrix.nested_absmax});
    tensors.push_back({weight + ".nested_quant_map", matrix.nested_map});
  }
  tensors.push_back({weight + kState + type, as_bytes(state_text(matrix, type))});
  return tensors;
}

bool hold_quantised(const std::vector<NamedTensor>& tensors) {
  return std::ranges::any_of(tensors, [](const NamedTensor& tensor) {
    return tensor.name.find(kState) != std::string::npos || tensor.name.ends_with(kScales);
  });
}

std::vector<NamedTensor> QuantisedTensors::places() const {
  std::vector<NamedTensor> places;
  for (const auto& [name, matrix] : matrices)
    places.push_back({name, at::zeros({1}).expand({matrix.out_features, matrix.in_features})});
  return places;
}

QuantisedTensors QuantisedTensors::of(std::vector<NamedTensor> tensors, const std::filesystem::path& file) {
  return Reader(std::move(tensors), file).read();
}

}  // namespace adtrain
