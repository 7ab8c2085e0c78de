#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/attention_backward/Launch.cuh"

namespace adtrain::kernels {

int attention_backward_parts(const BlockShape& shape) {
  if (shape.only_last_token()) return last_token_parts(shape);
  return backward_pass::blocks_for(shape);
}

int64_t attention_backward_carried(const BlockShape& shape) {
  return shape.queries == 0
             ? 0
             : int64_t{backward_pass::blocks_for(shape)} * backward_pass::carried_elements(shape.width);
}

void attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                        const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                        Bf16* carried, const UnaddedParts& ahead, cudaStream_t stream) {
  if (shape.only_last_token()) {
    return last_token_backward(shape, weights, keep, activations, dx1, dx, parts, ahead, stream);
  }
  if (shape.first != nullptr) {
    return padded_attention_backward(shape, weights, keep, activations, dx1, dx, parts, carried, ahead,
                                     stream);
  }
  backward_pass::launch_for_shape<backward_pass::PostNorm<false>>(
      {shape, weights, keep, activations, dx1, dx, parts, carried, ahead}, stream);
}

}  // namespace adtrain::kernels
