#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/forward/Kernel.cuh"
#include "kernels/block/forward/PostNorm.cuh"

namespace adtrain::kernels {

void padded_block_forward(const BlockShape& shape, const BlockWeights& weights, const DropoutMasks& keep,
                          const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  forward_pass::launch<forward_pass::PostNorm<true>>({shape, weights, keep, activations, y}, stream);
}

}  // namespace adtrain::kernels
