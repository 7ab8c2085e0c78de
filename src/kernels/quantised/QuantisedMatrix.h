#pragma once

#include <array>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// How the elements of a QuantisedMatrix are coded.
enum class QuantisedCode {
  nf4,   ///< 4-bit NormalFloat (Dettmers et al., 2023, QLoRA)
  fp4,   ///< bitsandbytes' 4-bit floating point: a sign, two bits of exponent, one of mantissa
  int8,  ///< LLM.int8's rows (Dettmers et al., 2022)
};

/// A linear layer's weights [out_features, in_features] in the form in which bitsandbytes stores them, byte
/// for byte. Tensors are contiguous and on one device; copies share them.
///
/// 4 bits: element i of the flattened weights is code_map[c] · absmax[i / block_size], where c is the high
/// half of codes[i / 2] for an even i, and the low half for an odd one. With double quantisation absmax[b] =
/// nested_map[absmax[b]] · nested_absmax[b / nested_block_size] + nested_offset. 8 bits: element [r, c] is
/// codes[r, c] · absmax[r] / 127.
struct QuantisedMatrix {
  QuantisedCode code = QuantisedCode::nf4;
  int64_t out_features = 0;
  int64_t in_features = 0;
  at::Tensor codes;     ///< 4 bits: uint8 [ceil(elements / 2), 1]; 8 bits: int8 [out_features, in_features]
  at::Tensor absmax;    ///< fp32, or with double quantisation uint8, [blocks]; 8 bits: fp32 [out_features]
  at::Tensor code_map;  ///< 4 bits: fp32 [16]; 8 bits: undefined
  int64_t block_size = 64;  ///< elements that share an absmax; of 4 bits alone
  /// Of double quantisation, else undefined: fp32 [ceil(blocks / nested_block_size)] and [256].
  at::Tensor nested_absmax, nested_map;
  int64_t nested_block_size = 256;
  float nested_offset = 0;

  bool nested() const { return nested_absmax.defined(); }
  /// All of its tensors, of which some may be undefined.
  std::array<at::Tensor, 5> tensors() const { return {codes, absmax, code_map, nested_absmax, nested_map}; }
  /// Of its tensors.
  int64_t bytes() const {
    int64_t sum = 0;
    for (const at::Tensor& tensor : tensors())
      if (tensor.defined()) sum += static_cast<int64_t>(tensor.nbytes());
    return sum;
  }
};

}  // namespace adtrain
