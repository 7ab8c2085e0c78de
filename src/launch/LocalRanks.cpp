#include "launch/LocalRanks.h"

#include <charconv>

#include <unistd.h>

#include "base/ProcessTable.h"

namespace adtrain {
namespace {

/// The variable that holds a process's rank.
std::string rank_variable_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::kTorchrun:
    case Launcher::kLocal:
      return "RANK";
    case Launcher::kMpi:
      return "OMPI_COMM_WORLD_RANK";
    case Launcher::kSlurm:
      return "SLURM_PROCID";
    case Launcher::kFlags:
    case Launcher::kSingle:
      break;
  }
  return "";
}

/// The variables that are the same on all ranks of one launch and differ from launch to launch.
std::vector<std::string> launch_variables_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::kTorchrun:
    case Launcher::kLocal:
      return {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"};
    case Launcher::kMpi:
      return {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
    case Launcher::kSlurm:
      return {"SLURM_JOB_ID", "SLURM_STEP_ID"};
    case Launcher::kFlags:
    case Launcher::kSingle:
      break;
  }
  return {};
}

std::string value_of(const std::map<std::string, std::string>& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

/// torchrun numbers ranks host by host; other launchers may number them round robin.
std::set<int64_t> expected_ranks(const LaunchContext& context) {
  std::set<int64_t> ranks;
  if (!context.on_one_host() && context.launcher != Launcher::kTorchrun) return ranks;
  const int64_t first = context.rank - context.local_rank;
  for (int64_t local = 0; local < context.local_world_size; ++local) ranks.insert(first + local);
  return ranks;
}

}  // namespace

LocalRanks::LocalRanks(const LaunchContext& context)
    : rank_(context.rank),
      rank_variable_(rank_variable_of(context.launcher)),
      expected_(expected_ranks(context)) {
  for (const std::string& name : launch_variables_of(context.launcher)) {
    of_all_ranks_[name] = process_environment(name).value_or("");
  }
  if (!launcher()) expected_.clear();  // in a container of its own a rank cannot see the others
}

std::optional<int64_t> LocalRanks::rank_of(int64_t process) const {
  const std::map<std::string, std::string> environment = environment_of_process(process);
  const std::string text = value_of(environment, rank_variable_);
  int64_t rank = 0;
  if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), rank).ec != std::errc()) {
    return std::nullopt;
  }
  for (const auto& [name, value] : of_all_ranks_) {
    if (value_of(environment, name) != value) return std::nullopt;
  }
  return rank;
}

std::map<int64_t, LocalRanks::Sight> LocalRanks::look() const {
  std::map<int64_t, Sight> seen;
  if (rank_variable_.empty()) return seen;
  for (const int64_t process : processes_of_this_user()) {
    const auto status = status_of_process(process);
    if (!status || status->ended()) continue;
    const auto rank = rank_of(process);
    if (!rank) continue;
    Sight& sight = seen[*rank];
    if (sight.process == 0 || status->stopped()) sight.process = process;
    sight.stopped = sight.stopped || status->stopped();
  }
  return seen;
}

std::optional<int64_t> LocalRanks::launcher() const {
  if (rank_variable_.empty()) return std::nullopt;
  int64_t ancestor = getppid();
  while (ancestor > 1 && rank_of(ancestor) == rank_) {
    const auto status = status_of_process(ancestor);
    ancestor = status ? status->parent : 0;
  }
  return ancestor > 1 ? std::optional(ancestor) : std::nullopt;
}

}  // namespace adtrain
