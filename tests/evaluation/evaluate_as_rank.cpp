/// evaluate_as_rank OUTPUT: one rank of small_evaluation under a launcher. Writes the merged returns, as this
/// rank got them, to OUTPUT.RANK.npy.

#include "SmallEvaluation.h"
#include "base/File.h"
#include "evaluation/NpyFile.h"

int main(int, char** argv) {
  using namespace adtrain;
  const LaunchContext launch = LaunchContext::detect();
  const auto communicator = Communicator::create(launch, DistributedOptions{});
  const InContextReturns measured = small_evaluation(*communicator);
  write_file(fmt::format("{}.{}.npy", argv[1], launch.rank), npy_bytes(measured.returns));
}
