#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/Error.h"
#include "collectives/LostPeer.h"
#include "collectives/Part.h"
#include "launch/DistributedOptions.h"
#include "launch/LaunchContext.h"

namespace adtrain {

enum class ReduceOp { kSum, kMax, kMin };

/// A collective operation under way. The tensors that it works on must stay untouched until wait() returns.
/// It may be destroyed unfinished only after an error: its communicator is unusable then.
class CollectiveWork {
 public:
  virtual ~CollectiveWork() = default;
  /// Returns when this rank's result is complete. Throws PeerLostError where a peer is lost or the deadline
  /// of `collective_timeout_seconds`, counted from this call, has passed. Must be called once.
  virtual void wait() = 0;
};

/// An operation with nothing to do.
class NoCollectiveWork final : public CollectiveWork {
 public:
  void wait() override {}
};

/// The ranks of a run as one group. Every operation is collective: all ranks call the same ones in the same
/// order, with tensors of the same shape and type, which are contiguous and of fp32, fp64, int64 or uint8, on
/// the CPU or on the device of the group; on a GPU fp16 and bf16 too. On a GPU an operation is ordered on the
/// current stream like a kernel, and later work on that stream sees its result.
///
/// No call waits for ever: each has the deadline of `collective_timeout_seconds` and throws PeerLostError,
/// which names the operation, its bytes, this rank and the backend. After that the communicator can only be
/// destroyed or aborted. Not thread-safe: calls from several threads must be synchronised.
class Communicator {
 public:
  /// Joins the group for tensors on the CPU: none for a single process, MPI where mpirun started this
  /// process, else Gloo. The ranks meet at a Meeting. Collective; returns when all ranks have arrived.
  /// Otherwise it throws EnvironmentError or ends the process as StartWatch does.
  static std::unique_ptr<Communicator> create(const LaunchContext& context,
                                              const DistributedOptions& options);
  /// Extends the group to this rank's device: with NCCL where that is a GPU. Collective. Throws as
  /// NcclCommunicator's constructor does.
  static std::unique_ptr<Communicator> extend(std::unique_ptr<Communicator> group, at::Device device,
                                              const DistributedOptions& options);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t rank() const { return rank_; }
  int64_t world_size() const { return world_size_; }
  bool is_root() const { return rank_ == 0; }
  at::Device device() const { return device_; }
  /// "none", "MPI" or "Gloo", or NCCL with one of them.
  virtual std::string backend() const = 0;

  /// Copies rank `root`'s content into every rank's tensor.
  void broadcast(at::Tensor& tensor, int64_t root);
  /// Reduces over ranks, element by element and in place. Every rank gets the same bits.
  void all_reduce(at::Tensor& tensor, ReduceOp op);
  /// Starts summing over ranks in place. Several may be under way, started in the same order everywhere.
  std::unique_ptr<CollectiveWork> start_all_reduce(at::Tensor& tensor);
  /// A tensor that is to be summed over ranks into another one of its size, which may be itself.
  struct Summand {
    at::Tensor from, to;
    double factor = 1;  ///< on each rank's part of the sum; fp32 only, where it is not 1
  };
  /// Starts summing all of them, as one operation. `to` must not overlap with another summand's tensors.
  std::unique_ptr<CollectiveWork> start_sums(std::vector<Summand> summands);
  /// Whether start_sums() reads `from` while it sums. Else it first copies `from`, multiplied, to `to`.
  virtual bool sums_without_copies() const { return false; }
  /// Starts summing over ranks in place, each rank its part_of() the tensor. What the tensor holds elsewhere
  /// is undefined afterwards. Several may be under way, started in the same order everywhere.
  std::unique_ptr<CollectiveWork> start_reduce_scatter(at::Tensor& tensor);
  /// Starts to make a tensor whole of which each rank has its part_of(), in place.
  std::unique_ptr<CollectiveWork> start_all_gather(at::Tensor& tensor);
  /// Every rank's tensor, stacked in the order of ranks: (world size, …).
  at::Tensor all_gather(const at::Tensor& tensor);
  /// Returns when every rank has called it.
  void barrier();

  /// Returns when the device has finished all work on this rank's current stream, including other ranks' part
  /// in it. Throws PeerLostError as CollectiveWork::wait() does. On the CPU there is nothing to wait for.
  virtual void synchronize() {}

  /// Advances started operations, for backends without threads of their own. Cheap; to be called regularly
  /// during long computations.
  virtual void progress() {}

  /// Ends this process at once with `code`, and with it the run: mpirun is asked to end the other ranks;
  /// under other launchers they see the connection closed. Destructors do not run.
  [[noreturn]] virtual void abort(ExitCode code);

 protected:
  Communicator(int64_t rank, int64_t world_size, double timeout_seconds, at::Device device = at::kCPU)
      : rank_(rank), world_size_(world_size), timeout_seconds_(timeout_seconds), device_(device) {}

  double timeout_seconds() const { return timeout_seconds_; }
  /// Describes an operation for error messages.
  CollectiveCall call(std::string name, size_t bytes) const;

  /// Each backend implements these. Tensors have been checked and are never empty.
  virtual std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) = 0;
  virtual std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) = 0;
  /// `gathered` is (world size, elements) and uninitialised.
  virtual std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor,
                                                           at::Tensor& gathered) = 0;
  virtual std::unique_ptr<CollectiveWork> begin_barrier() = 0;
  virtual std::unique_ptr<CollectiveWork> begin_sums(std::vector<Summand> summands);
  virtual std::unique_ptr<CollectiveWork> begin_reduce_scatter(at::Tensor& tensor);
  virtual std::unique_ptr<CollectiveWork> begin_all_gather_of_parts(at::Tensor& tensor);

 private:
  void check_tensor(const at::Tensor& tensor) const;

  int64_t rank_;
  int64_t world_size_;
  double timeout_seconds_;
  at::Device device_;
};

}  // namespace adtrain
