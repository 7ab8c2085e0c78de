#include "run/sweep/SweepRunner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Text.h"

namespace adtrain {
namespace {

using Status = SweepProgress::Status;

constexpr double kLookSeconds = 0.5;

bool begins_with_name(const std::string& variable, const std::string& name) {
  return variable.starts_with(name + "=");
}

}  // namespace

const char* name_of(Status status) {
  switch (status) {
    case Status::kWaiting:
      return "waiting";
    case Status::kTraining:
      return "training";
    case Status::kEvaluating:
      return "evaluating";
    case Status::kDone:
      return "done";
    case Status::kStopped:
      return "stopped";
    case Status::kFailed:
      return "failed";
  }
  return "";
}

SweepRunner::SweepRunner(const std::vector<SweepRun>& runs, Settings settings, Console& console)
    : runs_(runs), settings_(std::move(settings)), console_(console), progress_(runs.size()) {}

std::filesystem::path SweepRunner::log_of(size_t run) const {
  return settings_.logs / (runs_[run].name() + ".log");
}

void SweepRunner::run(const SweepSlots& slots, const std::function<void()>& changed) {
  slots_ = slots;
  changed_ = changed;
  begin_waiting();
  while (!jobs_.empty()) {
    if (const std::optional<int> signal = signals_.next(kLookSeconds)) answer(*signal);
    take_ends();
    begin_waiting();
  }
}

/// Gives each free slot the next run of which something remains to be done.
void SweepRunner::begin_waiting() {
  for (size_t slot = 0; slot < slots_.devices.size(); ++slot) {
    const bool taken = std::ranges::find(jobs_, slot, &Job::slot) != jobs_.end();
    while (!taken && !stopping_ && next_ < runs_.size()) {
      const size_t run = next_++;
      const auto stage = settings_.overwrite ? SweepRun::Stage::kToTrain : runs_[run].stage();
      if (stage != SweepRun::Stage::kDone) {
        start(run, slot, stage);
        break;
      }
      progress_[run].status = Status::kDone;
      tell(run, "was trained and evaluated before");
      changed_();
    }
  }
}

void SweepRunner::start(size_t run, size_t slot, SweepRun::Stage stage) {
  RankProcess::Plan plan;
  plan.arguments = runs_[run].command_line(stage, settings_.overwrite);
  if (settings_.ranks > 1) {
    const std::vector<std::string> launch = {"launch", "--nproc", std::to_string(settings_.ranks), "--logs",
                                             (settings_.logs / (runs_[run].name() + "-ranks")).string()};
    plan.arguments.insert(plan.arguments.begin(), launch.begin(), launch.end());
  }
  plan.environment = environment_of(slot);
  plan.log = log_of(run);
  plan.blocked_signals = signals_.blocked_before();
  jobs_.push_back({run, slot, stage, RankProcess(plan)});
  const bool trains = stage == SweepRun::Stage::kToTrain;
  progress_[run].status = trains ? Status::kTraining : Status::kEvaluating;
  if (trains) {
    const std::string& devices = slots_.devices[slot];
    tell(run, fmt::format("training{}", devices.empty() ? "" : " on GPU " + devices));
  }
  changed_();
}

std::vector<std::string> SweepRunner::environment_of(size_t slot) const {
  std::vector<std::string> variables;
  bool threads_are_chosen = slots_.threads == 0;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (begins_with_name(text, "OMP_NUM_THREADS")) threads_are_chosen = true;
    if (!begins_with_name(text, "CUDA_VISIBLE_DEVICES")) variables.push_back(text);
  }
  variables.push_back("CUDA_VISIBLE_DEVICES=" + slots_.devices[slot]);
  if (!threads_are_chosen) variables.push_back(fmt::format("OMP_NUM_THREADS={}", slots_.threads));
  return variables;
}

void SweepRunner::answer(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) {  // Ctrl-Z, until `fg` or `bg`
    for (const Job& job : jobs_) job.process.send(SIGSTOP);
    kill(getpid(), SIGSTOP);
    for (const Job& job : jobs_) job.process.send(SIGCONT);
    return;
  }
  for (const Job& job : jobs_) job.process.send(signal);
  if (!std::exchange(stopping_, true)) {
    console_.info(fmt::format("{}: {} running save and stop, and no other begins", signal_name(signal),
                              jobs_.size() == 1 ? "the run that is" : "the runs that are"));
  }
}

void SweepRunner::take_ends() {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const std::optional<RankEnd> end = job->process.take_end();
    if (end) this->end(*job, *end);
    job = end ? jobs_.erase(job) : std::next(job);
  }
}

void SweepRunner::end(const Job& job, const RankEnd& end) {
  SweepProgress& progress = progress_[job.run];
  progress.seconds += job.since.seconds();
  if (end.exit_code == static_cast<int>(ExitCode::kRequeue)) {
    progress.status = Status::kStopped;
    tell(job.run, "stopped");
  } else if (end.failed()) {
    progress.status = Status::kFailed;
    progress.end = end;
    console_.warn(
        fmt::format("{} failed: {}; see {}", runs_[job.run].name(), end.text(), log_of(job.run).string()));
  } else if (job.stage == SweepRun::Stage::kToTrain && stopping_) {
    progress.status = Status::kStopped;
    tell(job.run, "trained, and not evaluated yet");
  } else if (job.stage == SweepRun::Stage::kToTrain) {
    return start(job.run, job.slot, SweepRun::Stage::kToEvaluate);
  } else {
    progress.status = Status::kDone;
    tell(job.run, fmt::format("trained and evaluated in {}", human_duration(progress.seconds)));
  }
  changed_();
}

void SweepRunner::tell(size_t run, const std::string& what) const {
  const auto over = std::ranges::count_if(progress_, [](const SweepProgress& each) {
    return each.status == Status::kDone || each.status == Status::kFailed;
  });
  console_.info(fmt::format("[{}/{}] {}: {}", over, runs_.size(), runs_[run].name(), what));
}

}  // namespace adtrain
