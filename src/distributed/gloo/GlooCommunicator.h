#pragma once

#include <memory>
#include <string>

#include "distributed/Communicator.h"

namespace adtrain {

/// CPU ranks that MPI did not start: torch's own Gloo over TCP; the ranks meet through rendezvous(). Threads
/// of its own carry the operations on. The interface is GLOO_SOCKET_IFNAME where that is set, else see
/// host_address().
class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const LaunchContext& context, const DistributedOptions& options);
  ~GlooCommunicator() override;
  std::string backend() const override { return "Gloo"; }

 protected:
  std::unique_ptr<Pending> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<Pending> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<Pending> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<Pending> begin_barrier() override;

 private:
  struct Group;  ///< keeps gloo's types out of every other file
  std::unique_ptr<Group> group_;
};

}  // namespace adtrain
