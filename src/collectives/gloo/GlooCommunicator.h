#pragma once

#include <memory>
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "collectives/Communicator.h"

namespace c10d {
class Store;
}

namespace adtrain {

/// Connects CPU ranks that mpirun did not start, by torch's own Gloo over TCP. Gloo's threads advance the
/// operations. The interface is GLOO_SOCKET_IFNAME where that is set, else see host_address().
class GlooCommunicator final : public Communicator {
 public:
  /// The ranks find each other's addresses in `store`, which none of them needs once all have returned.
  /// Throws EnvironmentError where they cannot connect.
  GlooCommunicator(const LaunchContext& context, const DistributedOptions& options,
                   const c10::intrusive_ptr<c10d::Store>& store);
  ~GlooCommunicator() override;
  std::string backend() const override { return "Gloo"; }

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<CollectiveWork> begin_barrier() override;

 private:
  struct Group;  ///< keeps gloo's types out of every other file
  class Operation;
  std::shared_ptr<Group> group_;  ///< shared with operations under way
};

}  // namespace adtrain
