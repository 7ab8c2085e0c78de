#include "watchdog/Failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/Host.h"
#include "base/Text.h"
#include "watchdog/ForeignError.h"
#include "watchdog/StoppedPeer.h"

namespace adtrain {
namespace {

constexpr const char* kRule = "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━";

std::string advice_for(ExitCode code) {
  const std::string go_on = Activity::of_this_process().to_go_on();
  switch (code) {
    case ExitCode::kUsage:
      return "correct the configuration as the error says, and start again";
    case ExitCode::kEnvironment:
      return "correct the setting or the host that the error names, and start again";
    case ExitCode::kData:
      return "mend the histories as the error says, and " + go_on;
    case ExitCode::kCheckpoint:
      return "choose a checkpoint that verifies, or make room for one, and " + go_on;
    case ExitCode::kNonFinite:
      return "lower lr or look for bad values in the histories, then " + go_on;
    case ExitCode::kOutOfMemory:
      return "let the run take less memory as the error says, and " + go_on;
    default:
      return "report it with the output of `adtrain env`, and " + go_on;
  }
}

}  // namespace

RankIdentity RankIdentity::of_this_process(int64_t rank, int64_t world_size) {
  return {rank, world_size, host_name(), getpid(), start_of_process(getpid())};
}

Failure Failure::of(const std::exception& error, const RankIdentity& who) {
  const ErrorMeaning meaning = meaning_of(error);
  return {who, Activity::of_this_process().now(), meaning.code, meaning.error,
          meaning.advice.empty() ? advice_for(meaning.code) : meaning.advice};
}

Failure Failure::gone(const RankIdentity& who, const ActivityStatus& doing) {
  return {
      who, doing, ExitCode::kPeerLost, "it ended without a word: killed, crashed or left early",
      fmt::format("look at the last lines of rank {} and at the system log of {} (out of memory, a crash, a "
                  "signal), then {}",
                  who.rank, who.host, Activity::of_this_process().to_go_on())};
}

Failure Failure::silent(const RankIdentity& who, const ActivityStatus& doing, double seconds) {
  return {
      who, doing, ExitCode::kPeerLost,
      fmt::format("it has not been heard of for {}: its process is stopped, or its host or network is down",
                  human_duration(seconds)),
      fmt::format("look whether process {} on {} is stopped and whether the host answers, then {}",
                  who.process, who.host, Activity::of_this_process().to_go_on())};
}

Failure Failure::elsewhere(const RankIdentity& who, const ActivityStatus& doing) {
  return {
      who, doing, ExitCode::kPeerLost,
      "the others waited for it in vain: it is alive and does something else",
      fmt::format("see what process {} on {} does (`gdb -p`, `top`, a slow disk); if it is only slow, raise "
                  "collective_timeout_seconds",
                  who.process, who.host)};
}

std::string Failure::block() const {
  const bool named = who.rank != RankIdentity::kNobody;
  const std::string title = named ? fmt::format("rank {} of {} failed first", who.rank, who.world_size)
                                  : fmt::format("none of {} ranks is known to have failed", who.world_size);
  std::string text =
      fmt::format("━━ adtrain ended: {} {}\n", title, std::string(kRule).substr(0, 3 * (named ? 26 : 14)));
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("   {:<11} {}\n", name, value);
  };
  if (named) {
    const std::string process =
        who.process > 0 ? fmt::format("process {} on {}", who.process, who.host) : "its process is not known";
    line("rank", fmt::format("{} of {}, {}", who.rank, who.world_size, process));
    // A rank that could not speak may have gone on since then.
    line(code == ExitCode::kPeerLost ? "last heard" : "was", doing.text());
  }
  line("error", error);
  if (code != ExitCode::kPeerLost) line("exit code", fmt::format("{}", static_cast<int>(code)));
  line("what to do", advice);
  return text + kRule + "\n";
}

}  // namespace adtrain
