#include "kernels/block/forward/Kernel.cuh"
#include "kernels/block/forward/PreNorm.cuh"
#include "kernels/block/pre_norm/PreNormAttention.h"

namespace adtrain::kernels {

void pre_norm_attention(const BlockShape& shape, const PreNormAttention& attention, const __nv_bfloat16* x,
                        __nv_bfloat16* x1, cudaStream_t stream) {
  using forward_pass::PreNorm;
  forward_pass::launch<PreNorm>({shape, attention, x, x1}, stream);
}

}  // namespace adtrain::kernels
