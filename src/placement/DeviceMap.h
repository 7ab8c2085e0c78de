#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "placement/MemoryLimits.h"
#include "placement/PlacedModules.h"

namespace adtrain {

/// How a map is found: see DeviceMap::automatic.
enum class MapMode { kBalanced, kBalancedLow0, kSequential };

/// Memory that a GPU keeps free of weights.
struct ContextMemory {
  int64_t of_gpu = 0;  ///< what a forward pass takes on each GPU beside the weights
  /// For so many of the modules that the CPU holds the first GPU keeps room: with two one comes while the
  /// other computes. accelerate has one.
  int64_t streamed = 2;
};

/// Which device holds which module of a network: a pure function of its arguments, so the same on every
/// machine. Immutable.
class DeviceMap {
 public:
  struct Row {
    std::string module;
    MapDevice device;
    int64_t bytes;  ///< of its weights
    int64_t spare;  ///< of the device's limit, after this module and all before it, with what they keep,
                    ///< and the context memory
  };

  /// Fills devices in ascending order, then the CPU, with modules in the order of use, and never comes back
  /// to a device, as accelerate's `infer_auto_device_map` does. Modules that share tensors stay together. The
  /// first GPU and the CPU keep room for the largest module that is not placed yet; where modules are left to
  /// the CPU, the first GPU keeps room for context.streamed such, if a map is found so.
  ///
  /// kSequential fills up to the limits. kBalanced limits every GPU but the last also to the total ÷ GPUs +
  /// 1.25 · max(largest block, mean layer). kBalancedLow0 does so for GPUs from 1 on, and leaves GPU 0 what
  /// these do not take. Of a single GPU nine tenths are used where the limits are not the user's. The context
  /// memory is taken from the limits first.
  ///
  /// A module takes what it keeps of the GPU that computes it. For modules that are left to the CPU the first
  /// GPU has room for it, so that it holds fewer of the others.
  ///
  /// Throws ConfigError where not all fit, which says what is left over and what to do.
  static DeviceMap automatic(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                             MapMode mode, const ContextMemory& context);
  /// The user's own map as YAML: "{embeddings: 0, blocks: 0, blocks.3: 1, head: 1}". Names are those of
  /// modules, of their parts, or what these begin with up to a dot; the longest one that fits holds; "" is
  /// all. Devices are numbers of GPUs, "cuda:1" or "cpu". Throws ConfigError where a module has no device, a
  /// name is that of none, the parts of a module are on several devices, or a limit is exceeded.
  static DeviceMap given(const std::string& text, const std::vector<PlacedModule>& modules,
                         const MemoryLimits& limits, const ContextMemory& context);

  /// In the order of modules.
  const std::vector<Row>& rows() const { return rows_; }
  /// Those that hold a module, ascending.
  std::vector<int> gpus() const;
  /// The GPU that computes what is on the CPU: that with the most spare memory, the lowest of equal ones.
  /// kCpu where the map has no GPU.
  MapDevice streaming_device() const;
  /// How many modules that stream may be on that GPU at once: 2, so that one comes while the other computes,
  /// or 1 where there is no room for two; from each run of neighbours on the CPU. 0 where none is on the CPU,
  /// or all are.
  int64_t streaming_buffers() const;
  /// What modules on the CPU keep on that GPU; 0 where the CPU computes them.
  int64_t kept_by_streamed() const { return kept_by_streamed_; }
  /// The GPU that alone would hold everything, the lowest; kCpu where none would.
  MapDevice alone_sufficient() const { return alone_; }

  /// For people, with a heading: a line for each run of equal modules on one device.
  std::vector<std::string> table() const;

 private:
  DeviceMap(const std::vector<PlacedModule>& modules, std::vector<MapDevice> devices,
            const MemoryLimits& limits, const ContextMemory& context);
  static DeviceMap filled(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                          const std::map<int, int64_t>& gpus, int64_t rooms, const ContextMemory& context);
  /// The same where the first GPU has room for what the modules keep that are left to the CPU.
  static DeviceMap filled_with_room(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                                    std::map<int, int64_t> gpus, int64_t rooms, const ContextMemory& context);
  /// Whether what is on the CPU finds the room on a GPU that it takes with so many modules there at once.
  bool has_room_to_stream(int64_t buffers) const;
  /// Throws ConfigError where it does not with one.
  void check_room_to_stream() const;
  /// Of all stages of neighbouring modules on the CPU: the largest module of each, together.
  int64_t room_to_stream() const;

  std::vector<Row> rows_;
  std::map<int, int64_t> spare_;  ///< of each GPU that limits name, in the end; but for kept_by_streamed_
  int64_t kept_by_streamed_ = 0;
  MapDevice alone_;
};

/// Those that a map of the user names, ascending, the CPU first. Throws as DeviceMap::given does for what is
/// no such map.
std::vector<MapDevice> devices_in_map(const std::string& text);

}  // namespace adtrain
