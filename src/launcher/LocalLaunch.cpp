#include "launcher/LocalLaunch.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <fstream>
#include <iterator>
#include <map>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Gpu.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "launch/LaunchContext.h"
#include "launch/LaunchVerdict.h"
#include "launch/MeetingPort.h"
#include "launch/StopSignals.h"
#include "launcher/GpuIds.h"
#include "launcher/PassedOnSignals.h"
#include "launcher/RankEnd.h"
#include "launcher/RankProcess.h"
#include "watchdog/Failure.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRanks = 1024;
constexpr double kLookSeconds = 0.2;       ///< how often the deadlines are checked
constexpr double kLastWordsSeconds = 1.5;  ///< for the other ranks to report what they know of a failure
constexpr double kSettleSeconds = 2.5;     ///< for a cause to show after its consequences
constexpr int64_t kShownLogBytes = 16 << 10;
constexpr size_t kShownLogLines = 12;

/// Prints to standard error, so that standard output is rank 0's alone. A terminal that is gone, or that
/// nobody reads, must neither end the run nor delay its end.
void say(const std::string& line) {
  print_error("adtrain launch: " + line + "\n");
}

/// The loopback port at which all ranks meet. The launcher binds it, so that nobody else takes it before rank
/// 0 takes it over.
class MeetingSocket {
 public:
  MeetingSocket() : socket_(bind_loopback(0)) {
    if (socket_ >= 0) return;
    throw EnvironmentError("This host gives no free TCP port, of which the ranks need one to meet.");
  }
  ~MeetingSocket() { close(socket_); }
  MeetingSocket(const MeetingSocket&) = delete;
  MeetingSocket& operator=(const MeetingSocket&) = delete;

  int get() const { return socket_; }
  int64_t port() const { return port_of(socket_); }

 private:
  int socket_;
};

/// A folder that no other launch writes to.
fs::path new_log_folder() {
  const std::time_t now = std::time(nullptr);
  char moment[32] = "";
  std::strftime(moment, sizeof moment, "%Y-%m-%d-%H%M%S", std::localtime(&now));
  return fs::path("runs") / "launch-logs" / fmt::format("{}-{}", moment, getpid());
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw EnvironmentError(
      fmt::format("cannot create {} ({}); choose another folder for the ranks' logs by --logs",
                  folder.string(), error.message()));
}

std::vector<std::string> last_lines(const fs::path& file) {
  std::ifstream log(file, std::ios::binary | std::ios::ate);
  if (!log) return {};
  log.seekg(std::max<std::streamoff>(0, log.tellg() - std::streamoff{kShownLogBytes}));
  std::deque<std::string> lines;
  for (std::string line; std::getline(log, line);) {
    lines.push_back(line);
    if (lines.size() > kShownLogLines) lines.pop_front();
  }
  return {std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end())};
}

/// Whether the variable is one that launchers set. An outer launcher's values would contradict this one's.
bool belongs_to_a_launcher(const std::string& variable) {
  static const std::vector<std::string> kNames = {"RANK",        "WORLD_SIZE",       "LOCAL_RANK",
                                                  "MASTER_ADDR", "LOCAL_WORLD_SIZE", "MASTER_PORT"};
  const std::string name = variable.substr(0, variable.find('='));
  return name.starts_with("TORCHELASTIC_") || name == "ADTRAIN_LAUNCHER" || name == kMeetingSocketVariable ||
         name == kVerdictVariable || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Uses torchrun's variables, which LaunchContext reads.
std::vector<std::string> environment_of(int64_t rank, int64_t ranks, int64_t port) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!belongs_to_a_launcher(*variable)) variables.emplace_back(*variable);
  }
  for (const char* name : {"RANK", "LOCAL_RANK"}) variables.push_back(fmt::format("{}={}", name, rank));
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"}) {
    variables.push_back(fmt::format("{}={}", name, ranks));
  }
  variables.emplace_back("MASTER_ADDR=127.0.0.1");
  variables.push_back(fmt::format("MASTER_PORT={}", port));
  variables.emplace_back("ADTRAIN_LAUNCHER=local");
  return variables;
}

constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";

/// Only these GPUs are visible from here on, to this process and its ranks. To be called before CUDA is.
/// Returns the number of ranks.
int64_t choose_ranks_on(const GpuIds& gpus, const std::optional<int64_t>& asked) {
  setenv(kVisibleGpus, gpus.text().c_str(), /*replace=*/1);
  gpus.check_shown(visible_gpu_count());
  if (asked) return *asked;
  say(fmt::format("--nproc is not given: {} rank{}, one for each of --gpu-ids {}", gpus.count(),
                  gpus.count() > 1 ? "s" : "", gpus.text()));
  return gpus.count();
}

/// The number of ranks; prints the reason for a default.
int64_t choose_ranks(const std::optional<int64_t>& asked, const std::optional<GpuIds>& gpus_of_ranks) {
  if (gpus_of_ranks) return choose_ranks_on(*gpus_of_ranks, asked);
  if (asked) return *asked;
  const int64_t gpus = visible_gpu_count();
  say(gpus > 0
          ? fmt::format("--nproc is not given: {} rank{}, one for each visible GPU", gpus,
                        gpus > 1 ? "s" : "")
          : "--nproc is not given and no GPU is visible: a single rank; --nproc 4 starts four on the CPU");
  return std::max<int64_t>(1, gpus);
}

void check_program(const fs::path& program) {
  if (fs::is_regular_file(program) && access(program.c_str(), X_OK) == 0) return;
  throw ConfigError(fmt::format(
      "--program: found {}, which is not a program that can be started; expected the path of one, "
      "with its folder",
      program.string()));
}

/// Checks the command that adtrain's own ranks run.
void check_command(const std::string& command) {
  if (command.empty() || command == "launch") {
    throw ConfigError(
        "adtrain launch: found no command line for the ranks; expected it after the launcher's options, as "
        "in adtrain launch --nproc 4 config.yaml --resume");
  }
  if (command == "collect") {
    throw ConfigError(
        "adtrain launch: found collect, which is one process and uses all cores or a GPU by itself; start it "
        "without the launcher");
  }
}

/// The GPUs that the request names, if it does. Throws where there are more ranks.
std::optional<GpuIds> gpus_of(const LocalLaunchRequest& request) {
  if (!request.gpu_ids) return std::nullopt;
  const char* const visible = std::getenv(kVisibleGpus);
  const GpuIds gpus = GpuIds::parse(*request.gpu_ids,
                                    visible == nullptr ? std::nullopt : std::optional<std::string>(visible));
  if (request.ranks.value_or(1) <= gpus.count()) return gpus;
  throw ConfigError(fmt::format(
      "--nproc: found {} ranks for the {} GPU{} of --gpu-ids {}; expected a GPU for each rank: name more "
      "GPUs, or start fewer ranks",
      *request.ranks, gpus.count(), gpus.count() > 1 ? "s" : "", gpus.text()));
}

void check(const LocalLaunchRequest& request) {
  if (request.ranks && (*request.ranks < 1 || *request.ranks > kMostRanks)) {
    throw ConfigError(fmt::format("--nproc: found {}; expected 1 to {} ranks", *request.ranks, kMostRanks));
  }
  if (!(request.grace_seconds >= 0)) {
    throw ConfigError(fmt::format("--grace: found {}; expected 0 seconds or more", request.grace_seconds));
  }
  if (request.program) {
    check_program(*request.program);
  } else {
    check_command(request.command_line.empty() ? "" : request.command_line.front());
  }
  const LaunchContext around = LaunchContext::detect();
  if (around.world_size > 1) {
    throw EnvironmentError(fmt::format(
        "adtrain launch starts all ranks itself, and this is process {} of {} already ({}); start "
        "it once, or leave `launch --nproc …` out",
        around.rank, around.world_size, around.evidence));
  }
}

/// The ranks of one launch, from the first to the last one's end.
class LocalLaunch {
 public:
  explicit LocalLaunch(const LocalLaunchRequest& request)
      : ranks_(choose_ranks(request.ranks, gpus_of(request))),
        grace_seconds_(request.grace_seconds),
        logs_(request.logs.value_or(new_log_folder())) {
    start(request);
  }

  ExitCode wait() {
    while (anyone_runs()) {
      if (const std::optional<int> signal = signals_.next(kLookSeconds)) answer(*signal);
      take_ends();
      if (!others_asked_ && failure_is_clear()) ask_others_to_end();
      if (kill_at_ && kill_at_->passed()) kill_those_left();
    }
    return conclude();
  }

 private:
  void start(const LocalLaunchRequest& request) {
    const MeetingSocket meeting;
    if (ranks_ > 1) create_folder(logs_);
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      RankProcess::Plan plan;
      plan.rank = rank;
      if (request.program) plan.program = fs::absolute(*request.program);
      if (request.program) plan.name = request.program->string();
      plan.arguments = request.command_line;
      plan.environment = environment_of(rank, ranks_, meeting.port());
      plan.environment.push_back(fmt::format("{}={}", kVerdictVariable, verdict_.of_ranks()));
      plan.inherited.push_back(verdict_.of_ranks());
      if (rank == 0) {
        plan.environment.push_back(fmt::format("{}={}", kMeetingSocketVariable, meeting.get()));
        plan.inherited.push_back(meeting.get());
      }
      plan.blocked_signals = signals_.blocked_before();
      if (rank > 0) plan.log = log_of(rank);
      processes_.emplace_back(plan);
    }
    if (ranks_ > 1) say(fmt::format("{} ranks on this host; {}", ranks_, where_logs_are()));
  }

  fs::path log_of(int64_t rank) const { return logs_ / fmt::format("rank-{}.log", rank); }
  std::string where_logs_are() const {
    return ranks_ == 2 ? fmt::format("rank 1 writes to {}", log_of(1).string())
                       : fmt::format("ranks 1 to {} write to {}/rank-N.log", ranks_ - 1, logs_.string());
  }
  std::string name_of(int64_t rank) const { return fmt::format("rank {} of {}", rank, ranks_); }

  bool anyone_runs() const {
    return std::any_of(processes_.begin(), processes_.end(), [](const auto& each) { return each.running(); });
  }

  void send_to_all(int signal) const {
    for (const RankProcess& process : processes_) process.send(signal);
  }

  void answer(int signal) {
    if (signal == SIGCHLD) return;
    if (signal == SIGTSTP) return pause_with_all();
    const bool to_end = signal != SIGUSR1, insists = to_end && asked_.insists();
    if (to_end && passed_on_ != 0 && !insists) return;
    send_to_all(signal);
    say(fmt::format("{} passed on to all ranks", signal_name(signal)));
    // The first request may take as long as writing a checkpoint does.
    if (insists && !kill_at_) kill_at_.emplace(grace_seconds_);
    if (to_end) passed_on_ = signal;
  }

  /// Ctrl-Z, until `fg` or `bg`.
  void pause_with_all() const {
    send_to_all(SIGSTOP);
    kill(getpid(), SIGSTOP);
    send_to_all(SIGCONT);
  }

  void take_ends() {
    for (RankProcess& process : processes_) {
      std::optional<RankEnd> end = process.take_end();
      if (!end) continue;
      end->asked = others_asked_;
      end->killed = others_killed_ && end->signal == SIGKILL;
      if (end->failed() && !since_failure_) since_failure_.emplace();
      ends_.push_back(*end);
    }
  }

  /// A rank that has lost a peer may end before the rank at fault, which then gets a little more time.
  bool failure_is_clear() const {
    if (!since_failure_) return false;
    const RankEnd* cause = cause_of_failure(ends_);
    const bool secondary = !cause->failed() || cause->exit_code == static_cast<int>(ExitCode::kPeerLost);
    return since_failure_->seconds() > (secondary ? kSettleSeconds : kLastWordsSeconds);
  }

  void ask_others_to_end() {
    others_asked_ = true;
    if (!anyone_runs()) return;
    const RankEnd* cause = cause_of_failure(ends_);
    say(fmt::format("{} ended: {}; the others are asked to end, and killed after {}", name_of(cause->rank),
                    cause->text(), human_duration(grace_seconds_)));
    send_to_all(SIGTERM);
    kill_at_.emplace(grace_seconds_);
  }

  void kill_those_left() {
    for (const RankProcess& process : processes_) {
      if (process.running()) say(fmt::format("{} did not end and is killed", name_of(process.rank())));
    }
    others_killed_ = true;
    send_to_all(SIGKILL);
    kill_at_.reset();
  }

  /// The ranks' own verdict counts: they also detect a rank that hangs while all processes run.
  const RankEnd* cause() {
    const std::optional<int64_t> verdict = verdict_.first();
    const auto found = std::find_if(ends_.begin(), ends_.end(),
                                    [&](const RankEnd& end) { return verdict && end.rank == *verdict; });
    return found != ends_.end() ? &*found : cause_of_failure(ends_);
  }

  ExitCode conclude() {
    const RankEnd* cause = cause_of_failure(ends_) == nullptr ? nullptr : this->cause();
    if (cause == nullptr) {
      const bool stopped = std::any_of(ends_.begin(), ends_.end(), [](const RankEnd& end) {
        return end.exit_code == static_cast<int>(ExitCode::kRequeue);
      });
      return stopped ? ExitCode::kRequeue : ExitCode::kDone;
    }
    if (verdict_.first() == RankIdentity::kNobody) {
      if (ranks_ > 1) say(where_logs_are());
      say("none of the ranks is known to have failed: they waited for each other in vain, and ended with "
          "exit "
          "code 7");
      return ExitCode::kPeerLost;
    }
    if (cause->rank > 0) show_log_of(cause->rank);
    if (ranks_ > 1 && !verdict_.first() && killed_by_a_stranger(*cause)) show_block(*cause);
    show_other_ends(*cause);
    if (ranks_ > 1) say(where_logs_are());
    say(fmt::format("{} {}: {}", name_of(cause->rank), what_happened(*cause), ending_of(*cause)));
    return cause->failed() ? static_cast<ExitCode>(cause->exit_code) : ExitCode::kPeerLost;
  }

  std::string what_happened(const RankEnd& cause) const {
    if (!cause.failed()) return "left first, while others still needed it";
    if (cause.killed)
      return fmt::format("hung: it had to be killed after {}", human_duration(grace_seconds_));
    if (cause.signal != 0 && cause.signal == passed_on_)
      return "was stopped by the signal that was passed on";
    return "failed first";
  }

  std::string ending_of(const RankEnd& cause) const {
    const bool by_verdict = cause.exit_code == static_cast<int>(ExitCode::kPeerLost);
    return by_verdict ? "the others waited for it in vain, and all ended with exit code 7" : cause.text();
  }

  bool killed_by_a_stranger(const RankEnd& end) const {
    return end.signal != 0 && !end.asked && end.signal != passed_on_;
  }

  /// For a rank that died so early that no other rank had come far enough to report it.
  void show_block(const RankEnd& cause) const {
    const Failure failure = {
        {cause.rank, ranks_, "", 0},
        {},
        ExitCode::kPeerLost,
        cause.text() + ", before any other rank was ready to notice it",
        "look at its last lines and at the system log (out of memory, a crash, a signal), "
        "and start again"};
    std::fputs(failure.block().c_str(), stderr);
  }

  void show_other_ends(const RankEnd& cause) const {
    std::map<std::string, std::vector<std::string>> ranks_by_end;
    for (const RankEnd& end : ends_) {
      if (&end != &cause) ranks_by_end[end.text()].push_back(std::to_string(end.rank));
    }
    for (const auto& [end, ranks] : ranks_by_end) {
      say(fmt::format("rank{} {}: {}", ranks.size() > 1 ? "s" : "", join(ranks, ", "), end));
    }
  }

  void show_log_of(int64_t rank) const {
    const std::vector<std::string> lines = last_lines(log_of(rank));
    say(lines.empty() ? fmt::format("rank {} has written nothing", rank)
                      : fmt::format("the last lines of rank {}:", rank));
    for (const std::string& line : lines) print_error("  | " + line + "\n");
  }

  PassedOnSignals signals_;  ///< constructed first: counting GPUs may start CUDA's threads, which must block
                             ///< these signals too
  int64_t ranks_;
  double grace_seconds_;
  fs::path logs_;
  VerdictPipe verdict_;
  std::vector<RankProcess> processes_;
  std::vector<RankEnd> ends_;  ///< in the order in which they were seen
  std::optional<Stopwatch> since_failure_;
  std::optional<Deadline> kill_at_;
  StopSignals asked_;
  int passed_on_ = 0;  ///< the latest request to end that was passed on, 0 for none
  bool others_asked_ = false;
  bool others_killed_ = false;
};

}  // namespace

ExitCode launch_locally(const LocalLaunchRequest& request) {
  check(request);
  return LocalLaunch(request).wait();
}

}  // namespace adtrain
