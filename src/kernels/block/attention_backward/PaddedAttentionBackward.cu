#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/attention_backward/Launch.cuh"

namespace adtrain::kernels {

void padded_attention_backward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                               const BlockActivations& activations, const Bf16* dx1, Bf16* dx, float* parts,
                               Bf16* carried, const UnaddedParts& ahead, cudaStream_t stream) {
  backward_pass::launch_for_shape<backward_pass::PostNorm<true>>(
      {shape, weights, keep, activations, dx1, dx, parts, carried, ahead}, stream);
}

}  // namespace adtrain::kernels
