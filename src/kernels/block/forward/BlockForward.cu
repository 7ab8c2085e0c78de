#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/forward/Kernel.cuh"
#include "kernels/block/forward/PostNorm.cuh"

namespace adtrain::kernels {

void block_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                   const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  if (shape.only_last_token()) return last_token_forward(shape, weights, keep, activations, y, stream);
  if (shape.first != nullptr) return padded_block_forward(shape, weights, keep, activations, y, stream);
  forward_pass::launch<forward_pass::PostNorm<false>>({shape, weights, keep, activations, y}, stream);
}

}  // namespace adtrain::kernels
