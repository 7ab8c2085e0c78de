#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/Fault.h"
#include "collectives/Communicator.h"
#include "data/BatchSource.h"
#include "memory/StepGraph.h"
#include "model/AlgorithmDistillation.h"
#include "parallel/GradientReducer.h"
#include "training/LossScale.h"
#include "training/LossSums.h"
#include "training/Optimizer.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// One optimizer step of one rank: forward and backward of its micro-batches, the gradient's all-reduce
/// (which overlaps with the backward of the last micro-batch), clipping and the update. The loss is
/// normalised over the global batch, so the numbers of ranks and micro-batches change only the order of
/// additions.
///
/// On a GPU the first steps run eagerly; then the step is captured in a CUDA graph, which the following steps
/// replay. The host does not wait for the device. Where a GPU's memory does not suffice to capture, all ranks
/// go on eagerly, unless the options insist.
class TrainStep {
 public:
  /// What the step works on; all borrowed. `loss_scale` is null where the loss is not scaled.
  struct Parts {
    AlgorithmDistillation& model;
    Communicator& communicator;
    GradientReducer& reducer;
    Optimizer& optimizer;
    LossScale* loss_scale;
  };
  /// `share` gives the global batch's size.
  TrainStep(Parts parts, BatchShare share, const TrainingOptions& options);
  ~TrainStep();
  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;

  /// Runs optimizer step `step` of the run; `batches` is the same in every call. Dropout's masks are a
  /// function of (seed, step, row of the global batch). Those that libtorch or a plug-in draws are one of
  /// (seed, rank, step, share). So a resumed run draws what the uninterrupted one would have drawn.
  void run(BatchSource& batches, int64_t step, double learning_rate);

  /// This rank's losses since they were last taken.
  LossSums& losses() { return losses_; }
  bool captured() const { return graph_.captured(); }
  /// See StepGraph::bytes().
  int64_t graph_bytes() const { return graph_.bytes(); }
  /// Why no step was captured although options and network allow it; empty where one was, or will be.
  const std::string& why_not_captured() const { return why_not_captured_; }
  /// Runs `work` between two steps, with the captured step's memory: see StepGraph.
  void lend_memory_to(const std::function<void()>& work) { graph_.lend_memory_to(work); }

  /// Runs out of this device's memory where ADTRAIN_FAULT plans that for this moment.
  static void run_out_of_memory(StepMoment moment, const at::Device& device);

 private:
  using NextBatch = std::function<Batch(int64_t micro_step)>;
  void take(const NextBatch& next_batch);
  void take_captured(BatchSource& batches);
  /// Whether every rank has captured the step; else none has, and none will try again. Collective.
  bool capture(BatchSource& batches, const NextBatch& next_batch);
  /// Copies the next micro-batches into the graph's inputs.
  void feed_graph(BatchSource& batches);
  void backward_of(const Batch& batch, int64_t micro_step);
  /// Whether the loss depends on what trains. Throws ConfigError where it never does.
  bool has_gradients(const at::Tensor& loss) const;
  /// int64 (B): the numbers of a micro-batch's rows in the global batch.
  at::Tensor rows_of(const Batch& batch, int64_t micro_step) const;
  /// fp32 scalar: the weight of a target's cross-entropy in the gradient, including the loss scale.
  at::Tensor weight_of_target(int64_t global_targets);
  /// The same of packed rows, whose targets a batch counts.
  at::Tensor weight_of_target(const at::Tensor& global_targets) const;
  /// Prepares the fault that ADTRAIN_FAULT plans for the step that begins.
  void prepare_fault();
  /// `value`, or NaN in the steps for which a fault of this kind is planned.
  at::Tensor with_fault(FaultKind kind, const at::Tensor& value) const;

  Parts parts_;
  at::Device device_;
  BatchShare share_;
  LossPositions loss_positions_;
  uint64_t seed_;
  at::Tensor dropout_seed_;  ///< int64 (1) on the device: of the current step
  at::Tensor rows_;          ///< int64 (accumulation, micro-batch) on the device: numbers in the global batch
  LossSums losses_;
  at::Tensor target_weight_;     ///< without loss scale it is the same as long as
  int64_t weighed_targets_ = 0;  ///< the global batch has this number of targets
  /// fp32 scalar that is 1, or NaN in a faulty step; undefined where no such fault is planned. On the device,
  /// so that captured steps read it too.
  at::Tensor fault_factor_;
  CudaGraphUse cuda_graph_;
  bool captures_;
  bool capturing_ = false;
  std::string why_not_captured_;
  int64_t steps_taken_ = 0;
  std::vector<Batch> inputs_;  ///< the graph's, by micro-step, where the source does not work on the device
  StepGraph graph_;
};

}  // namespace adtrain
