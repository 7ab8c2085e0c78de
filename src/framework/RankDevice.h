#pragma once

#include <string>

#include <c10/core/Device.h>

#include "distributed/Communicator.h"
#include "distributed/LaunchContext.h"

namespace adtrain {

/// Where ranks compute.
enum class DeviceChoice { kAuto, kCpu, kCuda };

/// What a rank computes on.
struct RankDevice {
  c10::Device device = c10::kCPU;
  std::string name = "CPU";  ///< for people: "NVIDIA H200"
  std::string notice;        ///< what the user should know of the choice; empty if nothing

  /// One GPU a rank, or the CPU for all of them. A GPU becomes the current one, and the calling thread's work
  /// goes to a stream of its own there, as CUDA graphs ask for.
  ///
  /// kAuto takes GPUs where every rank has one for itself. Collective, over a group on the CPU. Throws
  /// EnvironmentError, on every rank, where kCuda cannot be had: a rank without a GPU, or two on one.
  static RankDevice choose(DeviceChoice choice, const LaunchContext& context, Communicator& group);
};

}  // namespace adtrain
