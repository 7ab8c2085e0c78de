#include "watchdog/StoppedPeer.h"

#include <csignal>

#include "base/ProcessTable.h"

namespace adtrain {

int64_t start_of_process(int64_t process) {
  const auto found = status_of_process(process);
  return found ? static_cast<int64_t>(found->started) : 0;
}

void wake_if_stopped(const RankIdentity& who) {
  if (who.process <= 1 || who.started == 0) return;
  const auto found = status_of_process(who.process);
  if (!found || static_cast<int64_t>(found->started) != who.started || found->state != 'T') return;
  kill(static_cast<pid_t>(who.process), SIGCONT);
}

}  // namespace adtrain
