/// evaluate_as_rank OUTPUT [STOPPER]: one rank of small_evaluation under a launcher. Writes to OUTPUT.RANK
/// what this rank got: the merged returns as a NumPy file, and behind it those of planned_evaluation, or
/// "stopped". Rank STOPPER says after two episodes that it will not go on.

#include <cstdlib>

#include <fmt/format.h>

#include "SmallEvaluation.h"
#include "base/File.h"
#include "evaluation/NpyFile.h"
#include "launch/LaunchContext.h"

int main(int argc, char** argv) {
  using namespace adtrain;
  const LaunchContext launch = LaunchContext::detect();
  const auto communicator = Communicator::create(launch, DistributedOptions{});
  const bool stops = argc > 2 && std::atoll(argv[2]) == launch.rank;
  const auto measured =
      small_evaluation(*communicator, [&](int64_t done, int64_t) { return !(stops && done == 2); });
  const std::string output =
      measured ? npy_bytes(measured->returns) + npy_bytes(planned_evaluation(*communicator)) : "stopped";
  write_file(fmt::format("{}.{}", argv[1], launch.rank), output);
}
