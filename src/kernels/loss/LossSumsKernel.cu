#include "base/Launch.cuh"
#include "kernels/loss/LossSumsKernel.h"

namespace adtrain {
namespace {

/// Each thread adds to one sum.
__global__ void add_loss_kernel(double* sums, const float* cross_entropies, const int64_t* correct,
                                int64_t targets) {
  const bool finite = isfinite(*cross_entropies);
  if (threadIdx.x == 0 && finite) sums[0] += *cross_entropies;
  if (threadIdx.x == 1 && finite) sums[1] += static_cast<double>(*correct);
  if (threadIdx.x == 2 && finite) sums[2] += static_cast<double>(targets);
  if (threadIdx.x == 3 && !finite) sums[3] += 1;
}

}  // namespace

void add_loss(double* sums, const float* cross_entropies, const int64_t* correct, int64_t targets,
              cudaStream_t stream) {
  gpu::launch("add_loss_kernel", add_loss_kernel, 1, 4, 0, stream, sums, cross_entropies, correct, targets);
}

}  // namespace adtrain
