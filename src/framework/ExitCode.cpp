#include "adtrain/error.h"
#include "base/Error.h"
#include "watchdog/ForeignError.h"

namespace adtrain {

static_assert(kExitDone == static_cast<int>(ExitCode::kDone));
static_assert(kExitRequeue == static_cast<int>(ExitCode::kRequeue));

int exit_code_of(const std::exception& error) {
  return static_cast<int>(meaning_of(error).code);
}

}  // namespace adtrain
