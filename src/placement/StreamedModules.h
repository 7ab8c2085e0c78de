#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "base/FlatLayout.h"

namespace adtrain {

/// Modules whose weights stay in the host's memory, pinned where the device is a GPU, and come to the device
/// for each use, ahead of it: while one module computes, the next one is copied on a stream of its own. For
/// one thread, on one stream.
class StreamedModules {
 public:
  /// The parameters of each module, of any types, on the CPU, which will be views of memory on the device, in
  /// the order in which they will be asked for, again and again. `buffers`: how many modules the device has
  /// room for, 1 or 2. With 1 nothing comes ahead.
  StreamedModules(const std::vector<std::vector<at::Tensor>>& modules, at::Device device, int64_t buffers);

  /// The module's parameters hold its values from now on, for what is enqueued on the current stream until
  /// the next call. What computes with the module before must have been enqueued.
  void bring(size_t module);

 private:
  struct Module {
    std::vector<at::Tensor> parameters;
    FlatLayout layout;  ///< of bytes
    at::Tensor values;  ///< uint8 (layout's total) on the host
    size_t buffer = 0;  ///< where it is, or comes
  };
  /// Memory for one module.
  struct Buffer {
    at::Tensor values;                  ///< uint8
    std::optional<c10::Event> arrived;  ///< on GPUs
  };
  void fetch(size_t module);

  at::Device device_;
  std::vector<Module> modules_;
  std::vector<Buffer> buffers_;
  size_t next_buffer_ = 0;
  std::optional<size_t> fetched_;       ///< the module that was fetched last
  std::optional<c10::Stream> copies_;   ///< on GPUs
  std::optional<c10::Event> computed_;  ///< what was enqueued before the last call of bring()
};

}  // namespace adtrain
