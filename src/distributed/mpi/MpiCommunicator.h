#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "distributed/Communicator.h"

namespace adtrain {

/// CPU ranks that mpirun started. Every operation is a non-blocking MPI call that is polled until its
/// deadline; between polls the core is given up, as ranks often share cores. MPI has no threads of its own
/// here: operations advance inside wait() and progress() alone.
class MpiCommunicator final : public Communicator {
 public:
  /// Starts MPI if need be, which waits for all ranks without a limit of its own and cannot be called off: a
  /// StartWatch bounds it. Throws EnvironmentError where MPI's ranks are not those of the context.
  MpiCommunicator(const LaunchContext& context, const DistributedOptions& options);
  ~MpiCommunicator() override;
  std::string backend() const override { return "MPI"; }
  void progress() override;
  [[noreturn]] void abort(ExitCode code) override;

 protected:
  std::unique_ptr<Pending> begin_broadcast(at::Tensor& tensor, int64_t root) override;
  std::unique_ptr<Pending> begin_all_reduce(at::Tensor& tensor, ReduceOp op) override;
  std::unique_ptr<Pending> begin_all_gather(const at::Tensor& tensor, at::Tensor& gathered) override;
  std::unique_ptr<Pending> begin_barrier() override;

 private:
  struct Group;  ///< keeps mpi.h out of every other file
  std::unique_ptr<Group> group_;
};

}  // namespace adtrain
