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
  look_at_all();
  begin_waiting();
  while (!jobs_.empty()) {
    if (const std::optional<int> signal = signals_.next(kLookSeconds)) answer(*signal);
    take_ends();
    begin_waiting();
  }
}

void SweepRunner::look_at_all() {
  int64_t before = 0;
  for (size_t run = 0; run < runs_.size(); ++run) {
    stages_.push_back(runs_[run].stage());
    if (stages_.back() != SweepRun::Stage::kDone) continue;
    progress_[run].status = Status::kDone;
    ++before;
  }
  if (before > 0) console_.info(fmt::format("{} of {} runs were done before", before, runs_.size()));
  changed_();
}

/// Gives each free slot the next run that waits.
void SweepRunner::begin_waiting() {
  for (size_t slot = 0; slot < slots_.devices.size(); ++slot) {
    while (std::ranges::find(jobs_, slot, &Job::slot) == jobs_.end()) {
      while (next_ < runs_.size() && progress_[next_].status != Status::kWaiting) ++next_;
      if (stopping_ || next_ == runs_.size()) return;
      start(next_, slot, stages_[next_]);
    }
  }
}

/// A run that cannot be started has failed.
void SweepRunner::start(size_t run, size_t slot, SweepRun::Stage stage) {
  const bool trains = stage == SweepRun::Stage::kToTrain;
  try {
    RankProcess::Plan plan;
    plan.arguments = runs_[run].command_line(stage, slots_.threads);
    if (settings_.ranks > 1) {
      const std::vector<std::string> launch = {"launch", "--nproc", std::to_string(settings_.ranks), "--logs",
                                               (settings_.logs / (runs_[run].name() + "-ranks")).string()};
      plan.arguments.insert(plan.arguments.begin(), launch.begin(), launch.end());
    }
    plan.environment = environment_showing(slots_.devices[slot]);
    plan.log = log_of(run);
    plan.blocked_signals = signals_.blocked_before();
    jobs_.push_back({run, slot, stage, RankProcess(plan)});
  } catch (const Error& error) {
    return fail(run, error.what(), error.exit_code());
  }
  progress_[run].status = trains ? Status::kTraining : Status::kEvaluating;
  if (trains) {
    const std::string& devices = slots_.devices[slot];
    tell(run, fmt::format("training{}", devices.empty() ? "" : " on GPU " + devices));
  }
  changed_();
}

void SweepRunner::answer(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) return pause_with_all();
  // Runs that are starting hold a TERM back, but not the HUP that a lost connection sends.
  for (const Job& job : jobs_) job.process.send(signal == SIGHUP ? SIGTERM : signal);
  if (!std::exchange(stopping_, true)) {
    console_.info(fmt::format("{}: {} running save and stop, and no other begins", signal_name(signal),
                              jobs_.size() == 1 ? "the run that is" : "the runs that are"));
  }
}

/// Ctrl-Z, until `fg` or `bg`. `adtrain launch` stops its ranks by itself.
void SweepRunner::pause_with_all() const {
  for (const Job& job : jobs_) job.process.send(settings_.ranks > 1 ? SIGTSTP : SIGSTOP);
  kill(getpid(), SIGSTOP);
  for (const Job& job : jobs_) job.process.send(SIGCONT);
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
  // Before training has begun, a request to stop ends a process by the signal itself.
  constexpr int kBySignal = 128;
  const bool by_request =
      stopping_ && (end.exit_code == kBySignal + SIGINT || end.exit_code == kBySignal + SIGTERM ||
                    end.exit_code == kBySignal + SIGUSR1);
  if (end.exit_code == static_cast<int>(ExitCode::kRequeue) || by_request) {
    progress.status = Status::kStopped;
    tell(job.run, "stopped");
  } else if (end.failed()) {
    return fail(job.run, fmt::format("{}; see {}", end.text(), log_of(job.run).string()),
                static_cast<ExitCode>(end.exit_code));
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

void SweepRunner::fail(size_t run, const std::string& failure, ExitCode exit_code) {
  SweepProgress& progress = progress_[run];
  progress.status = Status::kFailed;
  progress.failure = failure;
  progress.exit_code = exit_code;
  console_.warn(fmt::format("{} failed: {}", runs_[run].name(), failure));
  changed_();
}

void SweepRunner::tell(size_t run, const std::string& what) const {
  const auto over = std::ranges::count_if(progress_, [](const SweepProgress& each) {
    return each.status == Status::kDone || each.status == Status::kFailed;
  });
  console_.info(fmt::format("[{}/{}] {}: {}", over, runs_.size(), runs_[run].name(), what));
}

}  // namespace adtrain
