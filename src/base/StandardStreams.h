#pragma once

#include <string_view>

/// Standard output and standard error as a run needs them: their reader may close them (`adtrain … | head
/// -1`) or stop reading, and neither may end or hold up a run.
namespace adtrain {

/// To be called when the process starts. From now on writing to a closed pipe is an error that the writer
/// sees, and ends no process (SIGPIPE); processes that this one starts inherit it. Where the process was
/// started without one of its standard streams (`>&-`), that is /dev/null: the next file to be opened, a
/// checkpoint perhaps, must not become what is printed to.
void secure_standard_streams();

/// The answer of a command, on standard output. Whoever closes it early has read enough: the rest is dropped.
/// Throws EnvironmentError where it cannot be written for another reason, a full disk for one.
void print_answer(std::string_view text);

/// A message on standard error. Waits no longer than `seconds` for a reader that takes nothing, then drops
/// the rest and waits no more until that reader goes on. Ignores every error. Neither allocates nor touches
/// stdio, so any thread may call it in whatever state the process is.
void print_error(std::string_view text, double seconds = 2);

}  // namespace adtrain
