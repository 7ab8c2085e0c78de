#pragma once

#include <exception>

namespace adtrain {

/// The exit codes of docs/exit-codes.md that a program itself returns.
inline constexpr int kExitDone = 0;
inline constexpr int kExitRequeue = 75;  ///< saved on request; to be started again

/// The exit code of an error (docs/exit-codes.md): 3 where the ranks or the device are not available, 4 where
/// histories are missing or damaged, 5 where a checkpoint is unusable, 6 where a number is not finite, 7
/// where another rank was lost, 8 where memory ran out; 1 for errors of other libraries that mean none of
/// these. Errors of this library are std::runtime_error where the cause is in the environment, and
/// std::invalid_argument or std::logic_error where it is in the caller. what() says what was found, what was
/// expected and what to do. Thread-safe.
int exit_code_of(const std::exception& error);

}  // namespace adtrain
