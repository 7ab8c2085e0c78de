#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A GPU that this process may use.
struct SweepGpu {
  std::string id;     ///< as CUDA_VISIBLE_DEVICES takes it
  bool busy = false;  ///< another process computes on it
};

/// What runs of a sweep are divided over. Each slot holds one run at a time.
struct SweepSlots {
  std::vector<std::string> devices;   ///< one for each slot: its CUDA_VISIBLE_DEVICES; empty for the CPU
  int64_t threads = 0;                ///< for each rank on the CPU; 0: the ranks decide
  std::vector<std::string> left_out;  ///< GPUs that are busy

  /// As many slots of `ranks` GPUs as are free; where too few are free for one, of all GPUs. Without GPUs as
  /// many slots as `cores` allow, `runs` at most. `jobs`: that many, at most. Throws ConfigError where a run
  /// takes more GPUs than there are.
  static SweepSlots of(const std::vector<SweepGpu>& gpus, int64_t cores, int64_t ranks, int64_t runs,
                       std::optional<int64_t> jobs);
  int64_t count() const { return std::ssize(devices); }
};

/// This process's environment, in which these GPUs alone are visible; "" for none.
std::vector<std::string> environment_showing(const std::string& gpus);

/// The GPUs that CUDA shows this process, in its order. Initialises CUDA where there is a GPU.
std::vector<SweepGpu> gpus_of_this_process();

}  // namespace adtrain
