#include "kernels/loss/LossSumsKernel.h"
#include "kernels/primitives/EarlyStart.cuh"

namespace adtrain {
namespace {

/// Each thread adds to one sum.
__global__ void add_loss_kernel(double* sums, const float* losses, const int64_t* correct, int64_t targets,
                                const int64_t* counted) {
  kernels::follow_kernels_ahead();
  const bool finite = isfinite(*losses), judged = correct != nullptr;
  if (threadIdx.x == 0 && finite) sums[0] += *losses;
  if (threadIdx.x == 1 && finite && judged) sums[1] += static_cast<double>(*correct);
  if (threadIdx.x == 2 && finite) sums[2] += static_cast<double>(counted == nullptr ? targets : *counted);
  if (threadIdx.x == 3 && judged) sums[3] += 1;
  if (threadIdx.x == 4 && !finite) sums[4] += 1;
}

}  // namespace

void add_loss(double* sums, const float* losses, const int64_t* correct, int64_t targets,
              const int64_t* counted, cudaStream_t stream) {
  kernels::launch_early("add_loss_kernel", add_loss_kernel, 1, 5, 0, stream, sums, losses, correct, targets,
                        counted);
}

}  // namespace adtrain
