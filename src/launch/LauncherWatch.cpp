#include "launch/LauncherWatch.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "base/ProcessTable.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "launch/LocalRanks.h"

namespace adtrain {
namespace {

constexpr int kMillisecondsALook = 500;

/// Where variables are set by hand, the ancestor is the user's shell, which may end earlier.
bool has_launcher(const LaunchContext& context) {
  switch (context.launcher) {
    case Launcher::kLocal:
    case Launcher::kMpi:
    case Launcher::kSlurm:
      return true;
    case Launcher::kTorchrun:
      return !context.run_id.empty();
    case Launcher::kFlags:
    case Launcher::kSingle:
      break;
  }
  return false;
}

}  // namespace

LauncherWatch::LauncherWatch(const LaunchContext& context, double leave_within_seconds, std::string to_go_on)
    : who_(fmt::format("rank {} of {}", context.rank, context.world_size)),
      launcher_name_(launcher_name(context.launcher)),
      leave_within_seconds_(leave_within_seconds),
      to_go_on_(std::move(to_go_on)) {
  if (has_launcher(context)) launcher_ = LocalRanks(context).launcher();
  if (!launcher_) return;
  const auto status = status_of_process(*launcher_);
  started_ = status ? status->started : 0;
  process_ = ProcessDescriptor(*launcher_);
  wake_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { run(); });
}

LauncherWatch::~LauncherWatch() {
  if (!launcher_) return;
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
}

bool LauncherWatch::gone() const {
  if (kill(static_cast<pid_t>(*launcher_), 0) != 0 && errno == ESRCH) return true;
  const auto status = status_of_process(*launcher_);
  if (!status || started_ == 0) return false;  // a process hidden by another user
  return status->ended() || status->started != started_;
}

void LauncherWatch::run() const {
  pollfd events[] = {{wake_, POLLIN, 0}, {process_.get(), POLLIN, 0}};
  while (!gone()) {
    poll(events, std::size(events), process_.get() >= 0 ? -1 : kMillisecondsALook);
    if ((events[0].revents & POLLIN) != 0) return;
  }
  print_error(fmt::format(
      "adtrain: {}: {} (process {}) is gone and has left its ranks behind: they stop as if asked to, and end "
      "within {}; then {}\n",
      who_, launcher_name_, *launcher_, human_duration(leave_within_seconds_), to_go_on_));
  kill(getpid(), SIGUSR1);
  const Deadline deadline(leave_within_seconds_);
  while (!deadline.passed()) {
    const int left = static_cast<int>(1e3 * std::max(0.0, deadline.seconds_left())) + 1;
    if (poll(events, 1, left) == 1) return;
  }
  _exit(static_cast<int>(ExitCode::kEnvironment));
}

}  // namespace adtrain
