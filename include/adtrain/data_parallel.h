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
  /// Gradients are summed over ranks in pieces of this size, while the backward pass goes on.
  int64_t bucket_bytes = 25 << 20;
  /// Of the first such piece: smaller, so that communication starts early.
  int64_t first_bucket_bytes = 1 << 20;
  /// In which type GPUs sum gradients over ranks: kFloat, or kBFloat16, which halves the bytes and rounds
  /// each sum. CPU ranks send float32 whatever is asked for.
  at::ScalarType wire_type = at::kFloat;
  /// Whether gradients are divided by the number of ranks, as by DistributedDataParallel: right where each
  /// rank's loss is a mean over its own batch. Else they are summed.
  bool average = true;
  /// Gradients are divided by this number too: by the micro-steps of a step, where each loss is a mean over
  /// its own micro-batch.
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
/// All gradients are float32 and lie in one flat buffer. The first gradient of a step is copied there as soon
/// as it is complete, later ones are added, and what they are divided by is divided on the way, before they
/// are summed over ranks. While backward() runs, parameters whose gradient has not come have no `.grad`;
/// behind it each float32 parameter's is a view of the buffer and must stay so. zero_grad() is not needed
/// (and does no harm between steps); what an optimizer or clip_grad_norm_ does to gradients in place is fine.
/// Buckets of the buffer are summed over ranks as soon as their last gradient has come, in the same order on
/// all ranks whatever the order in which gradients come. A parameter that no loss of a step uses has a zero
/// gradient behind it, not none.
///
/// Mixed precision by main gradients: a float16 or bfloat16 parameter has its float32 place in the buffer
/// like the others, and its own `.grad` is freed as soon as it is there. main_parameters() has a float32 copy
/// of each such parameter for the optimizer, and update_parameters() rounds the copies back.
///
/// Collective: all ranks construct it and call backward() equally often, with the same `last_micro_step`. For
/// one thread, on which an exception of an operation of the group passes through backward(). On a GPU all is
/// ordered on the current stream without the host's waiting, so a whole step may be captured in a CUDA graph,
/// on every rank alike; the graph must be destroyed before this object.
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

  /// The backward pass of one micro-step. `loss` is a scalar. The first one of a step begins anew, later ones
  /// add to its gradients, and during the last one they are summed over ranks; only that one communicates. To
  /// average over n micro-steps divide each loss by n, or set DataParallelOptions::micro_steps.
  /// Throws std::logic_error where `.grad` of a parameter was replaced meanwhile (zero_grad between
  /// micro-steps) or has a graph of its own (create_graph), std::runtime_error as ProcessGroup does.
  void backward(const at::Tensor& loss, bool last_micro_step = true);

  /// What backward() is made of, for backward passes that are not a scalar's: one call each before a backward
  /// pass, and one behind the last. A parameter's gradient that comes twice between two calls is
  /// std::logic_error.
  void begin_micro_step(bool last);
  void finish();

  /// What an optimizer is to update, in the order of the parameters: the float32 parameters themselves, and a
  /// float32 copy of each 16-bit one, whose `.grad` is its main gradient. Always the same tensors.
  const std::vector<at::Tensor>& main_parameters() const;
  /// Rounds the float32 copies into the 16-bit parameters. After each step of the optimizer, and after the
  /// copies were restored from a checkpoint. Nothing to do where there are none.
  void update_parameters();

  /// All gradients as one float32 tensor: (elements, gaps between parameters included, which hold zeros);
  /// shared with every `.grad`.
  const at::Tensor& flat_gradient() const;
  /// Gives every rank rank 0's parameters and buffers. Collective. Buffers that the forward pass changes, as
  /// a batch norm's, are each rank's own between two calls.
  void broadcast_parameters();

 private:
  class Gradients;
  std::unique_ptr<Gradients> gradients_;
};

}  // namespace adtrain
