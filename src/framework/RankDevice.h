#pragma once

#include <string>

#include <c10/core/Device.h>

#include "collectives/Communicator.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// Where ranks compute.
enum class DeviceChoice { kAuto, kCpu, kCuda };

/// What a rank computes on.
struct RankDevice {
  c10::Device device = c10::kCPU;
  std::string name = "CPU";  ///< for people: "NVIDIA H200"
  std::string notice;        ///< what the user should know about the choice; empty if nothing

  /// Chooses one GPU per rank, or the CPU for all of them. A GPU becomes the current device, and the calling
  /// thread gets a stream of its own there, as CUDA graphs require.
  ///
  /// kAuto takes GPUs where every rank has one for itself. Collective, over a group on the CPU. Throws
  /// EnvironmentError on every rank where kCuda is not possible: a rank has no GPU or cannot use its own, or
  /// two ranks share one.
  static RankDevice choose(DeviceChoice choice, const LaunchContext& context, Communicator& group);
};

}  // namespace adtrain
