#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <driver_types.h>

#include "kernels/attention/decoding/KeyValueRing.h"
#include "kernels/norm/Norm.h"
#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain::kernels {

/// A block of which one kernel can run many: norm, attention without rotary positions, norm, and an
/// MLP with GELU.
struct StackableBlock {
  std::array<QuantisedMatrix, 4> matrices;  ///< queries, keys and values; behind attention; up; down
  std::array<at::Tensor, 4> biases;         ///< undefined for none
  /// Before the first matrix and the third, with what norm_products() makes of it and the matrix: undefined
  /// of RMSNorm, whose bias is.
  std::array<NormWeights, 2> norms;
  std::array<at::Tensor, 2> norm_products;
  HeadNorms head_norms;  ///< undefined for none
  KeyValueRing ring;
};

/// decode_stack() of certain blocks and rows. Copies share its memory; for one thread.
class StackDecoder {
 public:
  /// Whether the kernel is for these blocks and for `rows` rows of numbers of this type, on whatever device.
  static bool is_for(const std::vector<StackableBlock>& blocks, int64_t rows, at::ScalarType type);
  /// Where is_for() holds, and the kernel is for the GPU that all are on. A ring must have a token already.
  /// Waits for the GPU.
  static std::optional<StackDecoder> of(const std::vector<StackableBlock>& blocks, int64_t rows,
                                        at::ScalarType type, DistancePenalty penalty);

  /// What the next step can do before its tokens are there, beside what the current stream does until then.
  /// It may be left out; one that is captured must be followed by that step.
  void prepare() const;
  /// The newest tokens x (rows, 1, width) through all blocks, as decode_attention() and quantised_linear()
  /// run them one by one. `tokens`: as decode_attention()'s. Returns at once, and may be captured.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& tokens) const;
  /// Whether x is what it is for.
  bool takes(const at::Tensor& x) const;

 private:
  struct Preparation;
  StackDecoder() = default;
  void clear(cudaStream_t stream) const;

  int64_t rows_ = 0, window_ = 0, count_ = 0;
  at::ScalarType type_ = at::kBFloat16;
  DistancePenalty penalty_ = DistancePenalty::kNone;
  bool layer_norm_ = true;
  at::Tensor code_map_;           ///< undefined for 8 bits
  at::Tensor blocks_;             ///< StackedBlock of each, on the GPU
  at::Tensor exchange_;           ///< int32
  std::vector<at::Tensor> read_;  ///< what blocks_ has addresses of
  std::shared_ptr<Preparation> preparation_;
};

}  // namespace adtrain::kernels
