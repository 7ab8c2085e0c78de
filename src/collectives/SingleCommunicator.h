#pragma once

#include <memory>
#include <string>

#include "collectives/Communicator.h"

namespace adtrain {

/// A group of one rank: its operations have nothing to do.
class SingleCommunicator final : public Communicator {
 public:
  explicit SingleCommunicator(at::Device device = at::kCPU) : Communicator(0, 1, 0, device) {}
  std::string backend() const override { return "none"; }
  void synchronize() override;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<CollectiveWork> begin_barrier() override;
};

}  // namespace adtrain
