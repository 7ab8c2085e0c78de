#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/Communicator.h"

namespace adtrain {

/// Connects CPU ranks that mpirun started. Every operation is a non-blocking MPI call that is polled until
/// its deadline. Between polls the core is yielded, as ranks often share cores. MPI has no threads of its own
/// here: operations advance only inside wait() and progress().
class MpiCommunicator final : public Communicator {
 public:
  /// Starts MPI if necessary. MPI_Init waits for all ranks without a limit of its own and cannot be
  /// cancelled: a StartWatch bounds it. Throws EnvironmentError where MPI's ranks are not those of the
  /// context.
  MpiCommunicator(const LaunchContext& context, const DistributedOptions& options);
  ~MpiCommunicator() override;
  std::string backend() const override { return "MPI"; }
  void progress() override;
  [[noreturn]] void abort(ExitCode code) override;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<CollectiveWork> begin_barrier() override;
  std::unique_ptr<CollectiveWork> begin_reduce_scatter(at::Tensor& tensor) override;

 private:
  struct Group;  ///< keeps mpi.h out of every other file
  std::unique_ptr<Group> group_;
};

}  // namespace adtrain
