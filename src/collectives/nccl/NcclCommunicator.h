#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/Communicator.h"

namespace adtrain {

/// One GPU per rank. Tensors on the GPU go through NCCL, on a stream of its own. Tensors on the CPU, and the
/// meeting of the ranks, go through a CPU communicator, which this one owns.
///
/// On the GPU the host never waits for the device: CollectiveWork::wait() makes the current stream wait, so
/// operations may be captured in a CUDA graph. Graphs that hold operations must be destroyed before their
/// communicator. A lost peer is detected in synchronize() and in operations on the CPU, both with a deadline.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective. `device` is this rank's GPU and the current one. Throws PeerLostError or EnvironmentError
  /// where not all ranks arrive or NCCL cannot connect them.
  NcclCommunicator(std::unique_ptr<Communicator> control, at::Device device,
                   const DistributedOptions& options);
  ~NcclCommunicator() override;
  std::string backend() const override;
  void synchronize() override;
  bool sums_without_copies() const override { return true; }
  [[noreturn]] void abort(ExitCode code) override;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<CollectiveWork> begin_barrier() override;
  std::unique_ptr<CollectiveWork> begin_sums(std::vector<Summand> summands) override;
  std::unique_ptr<CollectiveWork> begin_reduce_scatter(at::Tensor& tensor) override;
  std::unique_ptr<CollectiveWork> begin_all_gather_of_parts(at::Tensor& tensor) override;

 private:
  struct Group;  ///< keeps nccl.h and CUDA's headers out of every other file
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Group> group_;
};

}  // namespace adtrain
