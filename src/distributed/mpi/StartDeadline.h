#pragma once

#include <string>
#include <thread>

namespace adtrain {

/// While it lives, MPI starts. MPI_Init waits for every rank, has no limit of its own and cannot be called
/// off: where it takes too long, this process says so and ends with ExitCode::kEnvironment, and mpirun ends
/// the others.
class StartDeadline {
 public:
  /// `who`: "rank 1 of 4".
  StartDeadline(const std::string& who, double seconds);

 private:
  std::jthread watch_;  ///< told to stop, and awaited, at the end
};

}  // namespace adtrain
