#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// The one place that queries which GPUs there are. CUDA is always compiled in; a machine without a GPU or
/// driver simply has no GPUs.
struct Gpu {
  std::string name;
  std::string uuid;            ///< "GPU-…", the same on every process of the host
  int compute_capability = 0;  ///< 90 for 9.0
  int64_t memory_bytes = 0;
  bool runs_our_kernels = false;  ///< tested by running one
  /// Where it does not run them although this build may have code for it, what CUDA says, and where to look:
  /// another process may have all of its memory, or the GPU for itself.
  std::string trouble;
};

/// Why a process cannot compute on the GPU, for people, without its subject: "has a …"; empty where it can.
std::string obstacle_of(const Gpu& gpu);

/// The visible GPUs in CUDA's order; empty where there is none. Initialises CUDA on the devices that it
/// probes.
std::vector<Gpu> visible_gpus();

/// One of them, 0 ≤ index < visible_gpu_count(). Initialises CUDA on it.
Gpu visible_gpu(int index);

/// Gpu::uuid of one of them, without initialising CUDA on it; empty where it cannot be found.
std::string visible_gpu_uuid(int index);

/// How many there are, without probing them; 0 where there is no GPU or driver.
int visible_gpu_count();

/// Versions as CUDA encodes them, 13000 for 13.0; 0 where there is no driver.
struct CudaVersions {
  int built_against = 0;
  int runtime = 0;
  int driver = 0;
};
CudaVersions cuda_versions();

}  // namespace adtrain
