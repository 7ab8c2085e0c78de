#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/FlatLayout.h"
#include "base/MainGradients.h"
#include "collectives/Communicator.h"
#include "launch/DistributedOptions.h"
#include "parallel/BucketLayout.h"
#include "parallel/FlatShards.h"
#include "parallel/WaitTimer.h"

namespace adtrain {

/// What writes gradients into the buffer.
enum class GradientSource { kAutograd, kCaller };

/// Owns the gradients as one flat fp32 buffer and sums them over ranks while the backward pass goes on.
///
/// Each fp32 parameter's `.grad` is a view of the buffer, in the parameters' order. The gradient of a 16-bit
/// parameter is added into its view as soon as it is complete, and freed. As a MainGradients the buffer takes
/// the gradients of several parameters at once. Buckets are longer views (BucketLayout). When the last
/// gradient of a bucket has been accumulated and all buckets before it are under way, its sum starts. So
/// every rank starts them in the same order, whatever the order in which its gradients become ready.
///
///     reducer.zero();
///     for each micro-step: reducer.begin_micro_step(last); loss.backward();   // one backward pass each
///     reducer.finish();
///
/// After finish() the buffer must be cleared before the next step, by the optimizer or zero().
///
/// The result is the sum over micro-steps and ranks: the caller divides losses by the global batch. It is an
/// all-reduce; where the options shard, a reduce-scatter, after which each rank has the sums of its shard
/// alone, and the rest of the buffer is undefined. A single rank communicates nothing. On a GPU all of it is
/// ordered on the current stream. The host does not wait, so it may be captured in a CUDA graph. For one
/// thread, which also runs the backward pass.
class GradientReducer : public MainGradients {
 public:
  /// `parameters`: leaves of fp32 or a 16-bit type on one device, all requiring gradients, in the order of
  /// first use in the forward pass. The communicator must outlive the reducer. With kCaller every `.grad` is
  /// left unchanged: the caller puts gradients into place_of() and reports that by added() or arrived().
  GradientReducer(std::vector<at::Tensor> parameters, Communicator& communicator, ReducerOptions options,
                  GradientSource source = GradientSource::kAutograd);
  /// Removes the hooks. Gradients stay where they are.
  ~GradientReducer() override;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// All gradients as one tensor in the layout of the parameters' FlatLayout; every `.grad` shares its
  /// memory.
  const at::Tensor& flat_gradient() const { return flat_; }
  /// Which elements of it are summed for this rank; null where all are.
  FlatShards* shards() { return shards_.get(); }
  /// Of the buffer, and of the rounded copies that are summed.
  int64_t bytes() const;
  int64_t bucket_count() const { return static_cast<int64_t>(buckets_.size()); }

  at::Tensor place_of(at::TensorList parameters) override;
  bool are_zero(at::TensorList parameters) const override;
  void added(at::TensorList parameters) override;
  /// Like added(), for the parameter with this index.
  void arrived(size_t parameter);
  /// Lets the sums over ranks multiply by `factor`, if the communicator sums without copies and the options
  /// do not shard. Whether it does:
  /// gradients are then left unmultiplied, and may lie elsewhere (arrived_at).
  bool multiply_sums_by(double factor);
  /// Whether this is the micro-step whose gradients are summed over ranks.
  bool communicates() const { return communicates_; }
  /// Like arrived(), for a contiguous fp32 gradient that lies elsewhere, in the micro-step that communicates.
  /// The sum goes to the parameter's place: a large gradient is read where it lies, small ones are copied
  /// there together when their bucket starts. The tensor is kept until then.
  void arrived_at(size_t parameter, const at::Tensor& gradient);

  /// Must be called before each backward pass; `communicates` is true only for the last one before finish().
  void begin_micro_step(bool communicates);
  /// Starts the buckets that have not started (for unused parameters) and waits for all of them. Throws
  /// PeerLostError as CollectiveWork::wait() does.
  void finish();
  /// Forgets a step that was not finished because capturing it failed: no bucket of it is waited for.
  void abandon();
  void zero();

  /// Seconds of communication that neither the backward pass nor, of shards, the update hid in the latest
  /// step. On a GPU the caller must have synchronised with it.
  double exposed_seconds() const;
  /// The same as the mean of the steps since the last call of this function; on a GPU of the latest step.
  double take_mean_exposed_seconds();

 private:
  struct Bucket {
    at::Tensor view;
    at::Tensor wire;      ///< the tensor that is summed: the view itself, or its rounded copy
    int64_t missing = 0;  ///< parameters whose gradient is still missing in this micro-step
    std::unique_ptr<CollectiveWork> sum;
    size_t first = 0, end = 0;                    ///< its parameters
    std::map<size_t, at::Tensor> elsewhere = {};  ///< by parameter: gradients that lie elsewhere
  };
  class ReadyHook;

  void make_views();
  void make_buckets(const BucketLayout& layout, WireType wire);
  void listen();
  void gradient_ready(size_t parameter);
  size_t index_of(const at::Tensor& parameter) const;
  void start_next_bucket();
  std::unique_ptr<CollectiveWork> start_sum(Bucket& bucket);
  /// Takes the sums from the rounded copy: those of this rank's shard, or all.
  void take_rounded(const Bucket& bucket) const;
  /// From its size alone, so that all ranks pass NCCL the same operations.
  bool is_large(size_t parameter) const;
  void copy_small(const Bucket& bucket);
  /// The bucket's large parameters, and the stretches of the buffer between them.
  std::vector<Communicator::Summand> summands_of(const Bucket& bucket) const;

  std::vector<at::Tensor> parameters_;
  FlatLayout layout_;
  Communicator& communicator_;
  GradientSource source_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;  ///< of `flat_`, by parameter
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;  ///< by parameter
  std::vector<bool> has_sums_;     ///< by parameter of 16 bits: whether something was added in this step
  size_t started_ = 0;             ///< buckets 0 … started − 1 are under way
  bool communicates_ = false;
  std::optional<double> factor_;  ///< of the sums, where they multiply
  std::unique_ptr<FlatShards> shards_;
  WaitTimer exposed_;
};

}  // namespace adtrain
