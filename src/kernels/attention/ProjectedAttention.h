#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/BlockPass.h"
#include "kernels/TokenStreams.h"
#include "kernels/rope/Rotary.h"

/// The attention of a block that runs by sublayers, on our own kernels. Its input is the output of the input
/// projection. `attend` defines the correct results.
namespace adtrain::kernels {

/// The order of queries, keys and values in the 3 · width columns of the projection's output.
enum class ProjectionOrder {
  kByThirds,  ///< the queries of all heads, then the keys, then the values
  kByHeads    ///< the query, key and value of the first head, then of the next
};

/// One forward pass and one backward pass, on the current stream. Autograd does not see them.
class ProjectedAttention {
 public:
  /// Returns the attention output of the last `rows` tokens, (B, rows, width). `inputs` in bf16 or fp16 is
  /// either the whole projection (B, streams.tokens(), 3 · width), or two matrices where only the last `rows`
  /// tokens have queries. These are the queries (B, rows, width), and the keys and values of all tokens (B,
  /// streams.tokens(), 2 · width) in the given order. `rotary` covers streams.context tokens, or is undefined
  /// for no rotation; queries of a second stream take the angles of the tokens whose positions they take.
  /// Kernels that stream keys and values read queries and keys that have been rotated: of a whole projection
  /// by heads, in place, which nothing else may read then.
  /// `draw`: the offset of the dropout mask in the pass's random stream, which nothing else may use.
  at::Tensor forward(at::TensorList inputs, ProjectionOrder order, int64_t rows, const TokenStreams& streams,
                     const Rotary& rotary, int64_t draw, const BlockPass& pass);

  struct Gradients {
    std::vector<at::Tensor> inputs;  ///< dense
    /// (parts, 3 · width) in fp32: partial sums of the columns of the whole projection's gradient, where our
    /// kernels have them at hand; else undefined.
    at::Tensor column_parts;
  };
  /// Call this at most once, where the pass trains; it frees what the forward pass kept.
  Gradients backward(const at::Tensor& d_attention_output);

 private:
  struct Remembered;
  std::shared_ptr<Remembered> remembered_;
};

}  // namespace adtrain::kernels
