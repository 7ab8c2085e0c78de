#include "base/Error.h"

#include <fmt/format.h>

#include "base/StandardStreams.h"

namespace adtrain {

ExitCode report_failure(const std::exception& error, const std::string& who) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const ExitCode code = known != nullptr ? known->exit_code() : ExitCode::kUnexpected;
  print_error(fmt::format("adtrain: {}{}{}\n", who.empty() ? "" : who + ": ",
                          code == ExitCode::kUnexpected ? "unexpected failure: " : "", error.what()));
  return code;
}

}  // namespace adtrain
