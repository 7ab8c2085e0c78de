#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "adtrain/communicator.h"

namespace torch::nn {
class Module;
}

namespace adtrain {

struct DataParallelOptions {
  /// Gradients are summed over ranks in buckets of this size, during the backward pass.
  int64_t bucket_bytes = 25 << 20;
  /// The size of the first bucket: smaller, so that communication starts early.
  int64_t first_bucket_bytes = 1 << 20;
  /// The type in which GPUs sum gradients over ranks: kFloat, or kBFloat16, which halves the bytes and rounds
  /// each sum. CPU ranks always send float32.
  at::ScalarType wire_type = at::kFloat;
  /// Whether gradients are divided by the number of ranks, as by DistributedDataParallel. This is correct
  /// where each rank's loss is a mean over its own batch. Else they are summed.
  bool average = true;
  /// Gradients are divided by this number too. Set it to the number of micro-steps in a step where each loss
  /// is a mean over its own micro-batch.
  int64_t micro_steps = 1;
};

/// Data-parallel gradients for any libtorch module, or any list of tensors.
///
///     adtrain::DataParallel parallel(*network, group);     // all ranks begin with rank 0's values
///     torch::optim::AdamW optimizer(parallel.main_parameters(), 1e-3);
///     for (…) {
///       parallel.backward(loss_of(batch));                 // gradients are those of all ranks' batches
///       optimizer.step();
///       parallel.update_parameters();                      // only where parameters are of a 16-bit type
///     }
///
/// All gradients are float32 and are in one flat buffer. A parameter's first gradient of a step is copied
/// there as soon as it is complete, and later ones are added; any division is part of that. A large gradient
/// that is a parameter's only one of a step is not copied: NCCL reads it where autograd has left it, divides,
/// and writes the sum to the buffer. So `.grad` has its value after backward() with `last_micro_step`, and
/// not before. During backward(), a parameter whose gradient is not ready has no `.grad`. After it each
/// float32 parameter's `.grad` is a view of the buffer and must stay so. zero_grad() is not needed (and does
/// no harm between steps). An optimizer or clip_grad_norm_ may change gradients in place. Buckets of the
/// buffer are summed over ranks as soon as their last gradient is ready, in the same order on all ranks
/// whatever the order in which gradients become ready. A parameter that no loss of a step uses has a zero
/// gradient after it, not an undefined one.
///
/// Mixed precision uses main gradients: a float16 or bfloat16 parameter has a float32 gradient in the buffer
/// like the others, and its own `.grad` is freed as soon as it has been copied there. main_parameters() has a
/// float32 copy of each such parameter for the optimizer, and update_parameters() rounds the copies back.
///
/// Collective: all ranks construct it and call backward() equally often, with the same `last_micro_step`. To
/// be used from one thread, on which an exception of an operation of the group leaves backward(). On
/// a GPU all work is ordered on the current stream and the host does not wait for it. So a whole step may be
/// captured in a CUDA graph, on every rank alike; the graph must be destroyed before this object.
class DataParallel {
 public:
  /// All parameters of the module that require gradients, on the group's device; every parameter and buffer
  /// gets rank 0's values. Handles stay valid; the module may be used and saved as before, but not moved to
  /// another device or type. A parameter that several parts of the module share counts once. The group must
  /// outlive this object; the module's tensors are shared. Throws std::invalid_argument where a parameter is
  /// of another device or type, or there is none; std::runtime_error (exit code 3), on every rank, where
  /// shapes or types differ between ranks.
  DataParallel(torch::nn::Module& module, ProcessGroup& group, const DataParallelOptions& options = {});
  /// The same for leaves that require gradients, best in the order of first use in the forward pass.
  DataParallel(std::vector<at::Tensor> parameters, ProcessGroup& group,
               const DataParallelOptions& options = {});
  /// Gradients and parameters stay where they are.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// The backward pass of one micro-step. `loss` is a scalar. The first call of a step starts new gradients,
  /// and later calls add to them. During the last call they are summed over ranks; only that call
  /// communicates. To average over n micro-steps divide each loss by n, or set
  /// DataParallelOptions::micro_steps. Throws std::logic_error where `.grad` of a parameter was replaced
  /// meanwhile (zero_grad between micro-steps) or has a graph of its own (create_graph), std::runtime_error
  /// as ProcessGroup does.
  void backward(const at::Tensor& loss, bool last_micro_step = true);

  /// The parts of backward(), for backward passes that do not start at a scalar. Call begin_micro_step()
  /// before each backward pass, and finish() after the last. A parameter whose gradient is computed twice
  /// between two calls is a std::logic_error.
  void begin_micro_step(bool last);
  void finish();

  /// The tensors that an optimizer must update, in the order of the parameters: the float32 parameters
  /// themselves, and a float32 copy of each 16-bit one, whose `.grad` is its main gradient. Always the same
  /// tensors.
  const std::vector<at::Tensor>& main_parameters() const;
  /// Rounds the float32 copies into the 16-bit parameters. To be called after each step of the optimizer, and
  /// after the copies were restored from a checkpoint. Does nothing where there are none.
  void update_parameters();

  /// All gradients as one float32 tensor of shape (elements), which includes gaps of zeros between
  /// parameters. It shares memory with every `.grad`.
  const at::Tensor& flat_gradient() const;
  /// Copies rank 0's parameters and buffers to every rank. Collective. Buffers that the forward pass changes,
  /// such as a batch norm's, are each rank's own between two calls.
  void broadcast_parameters();

 private:
  class Gradients;
  std::unique_ptr<Gradients> gradients_;
};

}  // namespace adtrain
