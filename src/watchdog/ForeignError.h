#pragma once

#include <exception>
#include <string>

#include "base/Error.h"

namespace adtrain {

/// What the exception that ends a process means to its user.
struct ErrorMeaning {
  ExitCode code = ExitCode::kUnexpected;
  std::string error;   ///< what was found, in UTF-8 and without a backtrace
  std::string advice;  ///< what to do; empty where the error says it itself or no advice is known
};

/// Errors of the Error family keep their meaning. Out of memory is kOutOfMemory; a full disk, a folder
/// without write permission and a limit of the system are errors of the environment (kEnvironment). They come
/// with advice, whichever library detected them. Anything else is kUnexpected. Thread-safe.
ErrorMeaning meaning_of(const std::exception& error);

/// Whether an exception means that a device, or this host, has no memory left for what was asked: libtorch's
/// own error, the system's, or that of a CUDA library.
bool is_out_of_memory(const std::exception& error);

/// Whether it is this host's.
bool is_out_of_host_memory(const std::exception& error);

/// The same as an Error, for report_failure: the advice follows the error.
Error as_error(const std::exception& error);

}  // namespace adtrain
