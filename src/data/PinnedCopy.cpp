#include "data/PinnedCopy.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "data/PinnedCopyKernel.h"

namespace adtrain {

void copy_pinned(const at::Tensor& to, const at::Tensor& from) {
  const c10::cuda::CUDAGuard on_device(to.is_cuda() ? to.device() : from.device());
  copy_pinned_bytes(to.data_ptr(), from.const_data_ptr(), static_cast<int64_t>(from.nbytes()),
                    c10::cuda::getCurrentCUDAStream());
}

}  // namespace adtrain
