#include "collectives/NcclVersion.h"

#include <fmt/format.h>
#include <nccl.h>

#include "base/Error.h"
#include "base/GpuLibraries.h"

namespace adtrain {

std::string nccl_version() {
  load_gpu_libraries_anyway();
  int code = 0;  // major · 10000 + minor · 100 + patch, since 2.9
  if (ncclGetVersion(&code) != ncclSuccess)
    throw EnvironmentError("NCCL is linked but does not tell its version.");
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace adtrain
