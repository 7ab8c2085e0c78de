#include "base/Clock.h"

#include "base/Fault.h"

namespace adtrain {

double unix_seconds() {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return Fault::of_this_process().holds(FaultKind::kClockJump) ? now + Fault::kClockJumpSeconds : now;
}

}  // namespace adtrain
