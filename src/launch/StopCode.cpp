#include "launch/StopCode.h"

namespace adtrain {

ExitCode stop_code(Launcher launcher) {
  return launcher == Launcher::kTorchrun ? ExitCode::kDone : ExitCode::kRequeue;
}

}  // namespace adtrain
