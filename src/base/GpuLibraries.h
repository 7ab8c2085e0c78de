#pragma once

/// The libraries that only GPUs need: libtorch_cuda, and by it cuBLASLt, cuDNN and NCCL. Loading them takes a
/// good tenth of a second. Our programs are therefore linked without them (src/GpuLibraries.cmake),
/// and each of their functions is bound at its first call, which must come after they have been loaded.
namespace adtrain {

/// Loads them where this machine has a driver for GPUs, and does nothing elsewhere. To be called at the
/// beginning of main, as libtorch asks only once whether it has CUDA. Throws EnvironmentError where there is
/// a driver and they cannot be loaded.
void load_gpu_libraries();

/// Loads them whether there is a driver or not, for what they say about themselves. Throws EnvironmentError.
void load_gpu_libraries_anyway();

}  // namespace adtrain
