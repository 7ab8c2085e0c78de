#pragma once

#include <exception>
#include <string>

#include "base/Error.h"

namespace adtrain {

/// What the exception that ends a process means to its user.
struct ErrorMeaning {
  ExitCode code = ExitCode::kUnexpected;
  std::string error;   ///< what was found, in UTF-8 and without a backtrace
  std::string advice;  ///< what to do; empty where the error says it itself, or nobody knows
};

/// Errors of the family stay what they are. Out of memory, a disk that is full, a folder that must not be
/// written and a limit of the system are the environment's (kEnvironment), with advice, whichever library
/// noticed them; anything else is kUnexpected. Thread-safe.
ErrorMeaning meaning_of(const std::exception& error);

/// The same as one of the family, for report_failure: the advice follows the error.
Error as_error(const std::exception& error);

}  // namespace adtrain
