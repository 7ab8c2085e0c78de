#include "base/GpuLibraries.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/Error.h"

namespace adtrain {

void load_gpu_libraries() {
  // As CUDA's runtime finds it. Loaded here or there, it stays.
  if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != nullptr) load_gpu_libraries_anyway();
}

void load_gpu_libraries_anyway() {
  // It brings the others along. RTLD_GLOBAL: this program's own calls are bound to what is loaded here.
  if (dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL) != nullptr) return;
  throw EnvironmentError(
      fmt::format("libtorch's library for GPUs could not be loaded: {}. Install libtorch again (bash "
                  "launch/setup.sh), or build adtrain against the one that is here.",
                  dlerror()));
}

}  // namespace adtrain
