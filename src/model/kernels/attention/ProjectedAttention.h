#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "model/Attention.h"
#include "model/kernels/BlockPass.h"

/// The attention of a block that runs by halves, from its input projection's output, by our own kernels.
/// `attend` is the definition of what is right.
namespace adtrain::kernels {

/// What stands behind what in the 3 · width columns of the projection's output.
enum class ProjectionOrder {
  kByThirds,  ///< all heads' queries, their keys, their values
  kByHeads    ///< a head's query, key and value, then the next head's
};

/// What of an attention decides whether these kernels are for it.
struct AttentionKind {
  int64_t width, heads;
  int64_t tokens;  ///< of the context
  bool two_streams, padded;
  bool turns;  ///< queries and keys have rotary positions

  static AttentionKind of(int64_t width, int64_t heads, const Streams& streams, bool turns) {
    return {width, heads, streams.context, streams.queries > 0, streams.padded(), turns};
  }
};

/// Why they are not, for people; empty where they are. They need no masks.
std::optional<std::string> why_no_projected_attention(const at::Device& device, at::ScalarType type,
                                                      const AttentionKind& kind);

/// Computed forward and then, once, back; on the current stream. Autograd does not see it.
class ProjectedAttention {
 public:
  /// What the last `rows` tokens read: (B, rows, width). `inputs`: all of the projection's output (B,
  /// streams.tokens(), 3 · width) in bf16 or, where the last `rows` tokens alone have queries, these (B,
  /// rows, width), and keys and values of all tokens (B, streams.tokens(), 2 · width) behind each other, by
  /// heads each. `rotary` for streams.context tokens, or undefined for none; queries of a second stream stand
  /// where the tokens stand whose places they take. `draw`: of dropout's bits in the pass, for this place
  /// alone.
  at::Tensor forward(at::TensorList inputs, ProjectionOrder order, int64_t rows, const Streams& streams,
                     const Rotary& rotary, int64_t draw, const BlockPass& pass);

  /// The gradients of the inputs, dense. To be called where the pass trains; what the forward pass has left
  /// goes with the result.
  std::vector<at::Tensor> backward(const at::Tensor& d_read);

 private:
  struct Remembered;
  std::shared_ptr<Remembered> remembered_;
};

}  // namespace adtrain::kernels
