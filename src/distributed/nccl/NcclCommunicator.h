#pragma once

#include <memory>
#include <string>

#include "distributed/Communicator.h"

namespace adtrain {

/// One GPU a rank. Tensors on the GPU travel through NCCL, on a stream of its own; tensors on the CPU, and
/// the meeting of the ranks, through a communicator of the CPU, which this one owns.
///
/// On the GPU nothing waits for the device: Pending::wait() lets the current stream wait, so operations may
/// be captured in a CUDA graph. Graphs that hold operations must be destroyed before their communicator. A
/// peer that is lost is noticed in synchronize() and in operations on the CPU, both with a deadline.
class NcclCommunicator final : public Communicator {
 public:
  /// Collective. `device` is this rank's GPU and the current one. Throws PeerLostError or EnvironmentError
  /// where the ranks do not all come, or NCCL cannot connect them.
  NcclCommunicator(std::unique_ptr<Communicator> control, at::Device device,
                   const DistributedOptions& options);
  ~NcclCommunicator() override;
  std::string backend() const override;
  void synchronize() override;
  [[noreturn]] void abort(ExitCode code) override;

 protected:
  std::unique_ptr<Pending> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<Pending> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<Pending> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<Pending> begin_barrier() override;

 private:
  struct Group;  ///< keeps nccl.h and CUDA's headers out of every other file
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Group> group_;
};

}  // namespace adtrain
