#include "model/kernels/fused/BlockForward.h"
#include "model/kernels/fused/block_forward/Kernel.cuh"
#include "model/kernels/fused/block_forward/PostNorm.cuh"

namespace adtrain::kernels {

void block_forward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                   const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  using forward_pass::PostNorm;
  forward_pass::launch<PostNorm>({shape, weights, keep, activations, y}, stream);
}

}  // namespace adtrain::kernels
