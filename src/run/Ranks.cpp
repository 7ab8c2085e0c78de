#include "run/Ranks.h"

#include "run/RunFolder.h"
#include "run/RunLock.h"

namespace adtrain {

ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body,
                             const std::filesystem::path& failure_file,
                             const std::function<void(const Failure&)>& on_failure) {
  RanksOptions options;
  options.distributed = config.distributed;
  options.device = config.run.device;
  options.cpu_threads = config.run.cpu_threads;
  options.configuration = config.resolved_yaml();
  options.on_failure = on_failure;
  options.failure_file.path = failure_file.empty() ? config.folder().failure() : failure_file;
  // Where another launch has taken the folder by now, this run must not write its failure there.
  options.failure_file.is_ours = [lock = RunFolder{options.failure_file.path.parent_path()}.lock()] {
    return !RunLock::held_by_another_launch(lock);
  };
  return as_one_of_the_ranks(options, body);
}

}  // namespace adtrain
