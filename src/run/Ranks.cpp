#include "run/Ranks.h"

#include <optional>

#include "collectives/StopRequest.h"
#include "run/RunFolder.h"
#include "run/RunLock.h"
#include "run/RunState.h"

namespace adtrain {

ExitCode as_one_of_the_ranks(const RunConfig& config, const std::function<ExitCode(const Ranks&)>& body,
                             const std::filesystem::path& failure_file,
                             const std::function<void(const Failure&)>& on_failure,
                             bool continues_by_resume) {
  RanksOptions options;
  options.distributed = config.distributed;
  options.device = config.run.device;
  options.cpu_threads = config.run.cpu_threads;
  options.configuration = config.resolved_yaml();
  options.on_failure = on_failure;
  options.continues_by_resume = continues_by_resume;
  options.failure_file.path = failure_file;
  // A launch whose folder another has taken by now, or was moved away, or that a finished run refused, must
  // not write its failure there.
  options.failure_file.is_ours = [folder = RunFolder{options.failure_file.path.parent_path()}] {
    if (RunLock::was_lost(folder.lock()) || RunLock::held_by_another_launch(folder.lock())) return false;
    const std::optional<RunState> state = RunState::read(folder.state());
    return !state || state->stage != RunState::Stage::kFinished || state->launch.started_this_process();
  };
  return as_one_of_the_ranks(options, [&](const Ranks& ranks) {
    const ExitCode code = body(ranks);
    static const StopRequest while_the_process_leaves;  // until its end, after the last barrier and MPI's
    return code;
  });
}

}  // namespace adtrain
