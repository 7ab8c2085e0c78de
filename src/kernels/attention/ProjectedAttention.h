#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// The attention of a block that runs by sublayers, from its input projection's output, by our own kernels.
/// `attend` is the definition of what is right.
namespace adtrain::kernels {

/// The order of queries, keys and values in the 3 · width columns of the projection's output.
enum class ProjectionOrder {
  kByThirds,  ///< all heads' queries, their keys, their values
  kByHeads    ///< a head's query, key and value, then the next head's
};

/// Computed forward and then, once, back; on the current stream. Autograd does not see it.
class ProjectedAttention {
 public:
  /// What the last `rows` tokens read: (B, rows, width). `inputs`: all of the projection's output (B,
  /// streams.tokens(), 3 · width) in bf16 or, where the last `rows` tokens alone have queries, these (B,
  /// rows, width), and keys and values of all tokens (B, streams.tokens(), 2 · width) one after another, by
  /// heads each. `rotary` for streams.context tokens, or undefined for none; queries of a second stream stand
  /// where the tokens stand whose places they take. `draw`: of the dropout mask in the pass, for this place
  /// alone.
  at::Tensor forward(at::TensorList inputs, ProjectionOrder order, int64_t rows, const TokenStreams& streams,
                     const Rotary& rotary, int64_t draw, const BlockPass& pass);

  /// The gradients of the inputs, dense. To be called where the pass trains; what the forward pass has left
  /// goes with the result.
  std::vector<at::Tensor> backward(const at::Tensor& d_attention_output);

 private:
  struct Remembered;
  std::shared_ptr<Remembered> remembered_;
};

}  // namespace adtrain::kernels
