#include "launcher/RankEnd.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <fmt/format.h>
#include <sys/wait.h>

#include "base/Error.h"

namespace adtrain {
namespace {

bool is(int exit_code, ExitCode code) {
  return exit_code == static_cast<int>(code);
}

/// As docs/exit-codes.md lists them.
const char* meaning(int exit_code) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kDone:
      return "done";
    case ExitCode::kUnexpected:
      return "unexpected failure";
    case ExitCode::kUsage:
      return "bad configuration or command line";
    case ExitCode::kEnvironment:
      return "environment: ranks disagree or do not meet, no such device, or the self test failed";
    case ExitCode::kData:
      return "histories missing or malformed";
    case ExitCode::kCheckpoint:
      return "checkpoint unusable";
    case ExitCode::kNonFinite:
      return "the loss became NaN or infinite";
    case ExitCode::kPeerLost:
      return "another rank was lost or a collective timed out; this rank is not the cause";
    case ExitCode::kOutOfMemory:
      return "out of memory";
    case ExitCode::kRequeue:
      return "stopped on request after a checkpoint";
  }
  return "not one of adtrain's";
}

}  // namespace

RankEnd RankEnd::of(int64_t rank, int wait_status) {
  RankEnd end;
  end.rank = rank;
  end.signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  end.exit_code = end.signal != 0 ? 128 + end.signal : WEXITSTATUS(wait_status);
  return end;
}

bool RankEnd::failed() const {
  return !is(exit_code, ExitCode::kDone) && !is(exit_code, ExitCode::kRequeue);
}

std::string RankEnd::text() const {
  if (signal != 0) return fmt::format("{} (signal {}: {})", signal_name(signal), signal, strsignal(signal));
  return fmt::format("exit code {} ({})", exit_code, meaning(exit_code));
}

const RankEnd* cause_of_failure(const std::vector<RankEnd>& ends) {
  const auto first = [&ends](auto&& matches) -> const RankEnd* {
    const auto found = std::find_if(ends.begin(), ends.end(), matches);
    return found == ends.end() ? nullptr : &*found;
  };
  const RankEnd* failed = first([](const RankEnd& end) { return end.failed(); });
  if (failed == nullptr) return nullptr;
  const auto on_its_own = [](const RankEnd& end) {
    const bool made_to_end = end.asked && (end.signal == SIGTERM || end.killed);
    return end.failed() && !is(end.exit_code, ExitCode::kPeerLost) && !made_to_end;
  };
  if (const RankEnd* end = first(on_its_own)) return end;
  if (failed != &ends.front()) return &ends.front();
  const RankEnd* hung = first([](const RankEnd& end) { return end.killed; });
  return hung != nullptr ? hung : failed;
}

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace adtrain
