#include "base/Error.h"

#include <cstdio>

#include <fmt/format.h>

namespace adtrain {

ExitCode report_failure(const std::exception& error, const std::string& who) {
  const auto* known = dynamic_cast<const Error*>(&error);
  fmt::print(stderr, "adtrain: {}{}{}\n", who.empty() ? "" : who + ": ",
             known != nullptr ? "" : "unexpected failure: ", error.what());
  std::fflush(stderr);
  return known != nullptr ? known->exit_code() : ExitCode::kUnexpected;
}

}  // namespace adtrain
