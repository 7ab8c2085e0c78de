#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "adtrain/communicator.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace adtrain {

/// The checkpoints of one run: folders `step-N`, and the symbolic link `latest` (docs/checkpoint-format.md).
///
///     adtrain::Checkpoints checkpoints("checkpoints", group);
///     checkpoints.track(*network);
///     checkpoints.track(optimizer);
///     int64_t step = checkpoints.resume().value_or(0);
///     …
///     checkpoints.save(step);
///
/// A folder is written under a temporary name, flushed to the disk, read back and renamed. Whenever the
/// process is killed, there is a complete, verified checkpoint or none. Older ones are deleted only after the
/// new one has its final name. `model.safetensors` holds the tensors under their names, for any safetensors
/// reader; the optimizers' state is in `optimizer.safetensors` as the bytes of libtorch's archive.
///
/// Rank 0 reads and writes; all ranks have the same state. All ranks track the same objects in the same
/// order. These must outlive this object, as the group must. An error of rank 0 is thrown on every rank. To
/// be used from the thread of the group. One run writes to a folder at a time.
class Checkpoints {
 public:
  /// `folder` need not exist yet. The `keep` newest checkpoints are kept, two at least.
  Checkpoints(std::filesystem::path folder, ProcessGroup& group, int64_t keep = 2);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Parameters and buffers, under their dotted names.
  void track(torch::nn::Module& module);
  /// All state that the optimizer saves. It must have the same parameters, in the same order, when restored.
  void track(torch::optim::Optimizer& optimizer);
  /// Any other tensor that is not a module's: a sample cursor, main parameters. On any device.
  /// Throws std::invalid_argument where the name is taken.
  void track(const std::string& name, at::Tensor tensor);

  /// Saves what is tracked as the state after `step` optimizer steps. Collective; takes as long as rank 0
  /// takes to write, within `collective_timeout_seconds`. Throws std::runtime_error: with exit code 6 where a
  /// number of a tensor is not finite (nothing is written), 5 where the checkpoint cannot be written or does
  /// not verify. In both cases earlier checkpoints are untouched, and training may go on. Returns warnings on
  /// rank 0, one for each failure that does not affect the checkpoint, such as that to delete older ones.
  std::vector<std::string> save(int64_t step);

  /// Restores what is tracked from the newest checkpoint whose files are complete, on all ranks, in place,
  /// and returns its step, or std::nullopt where the folder has no checkpoint. The number of ranks may differ
  /// from the one that saved. Collective. Throws std::runtime_error (exit code 5), on every rank, where no
  /// checkpoint is complete, or where names, shapes or types differ from what is tracked; the error lists
  /// them, and nothing is changed. It also throws where an optimizer cannot load its state; by then tensors
  /// have been restored already.
  std::optional<int64_t> resume();

 private:
  class Tracked;
  std::unique_ptr<Tracked> tracked_;
};

}  // namespace adtrain
