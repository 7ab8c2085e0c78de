#pragma once

#include <memory>
#include <string>

#include "collectives/Communicator.h"

namespace adtrain {

/// A group of one rank: its operations have nothing to do. For trials it may also be one rank of several of
/// which the others are not there: each operation then leaves this rank's tensors as they are.
class SingleCommunicator final : public Communicator {
 public:
  explicit SingleCommunicator(at::Device device = at::kCPU, int64_t rank = 0, int64_t world_size = 1)
      : Communicator(rank, world_size, 0, device) {}
  std::string backend() const override { return "none"; }
  void synchronize() override;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<CollectiveWork> begin_barrier() override;
};

}  // namespace adtrain
