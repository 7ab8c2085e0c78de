#pragma once

#include <string_view>

/// Standard output and standard error as a run needs them: their reader may close them (`adtrain … | head
/// -1`) or stop reading, or they are files that may grow no further, and nothing of this may end or delay a
/// run.
namespace adtrain {

/// To be called when the process starts. From now on SIGPIPE and SIGXFSZ are ignored: writing to a closed
/// pipe returns an error, and so does writing beyond the limit for files (`ulimit -f`). Processes that this
/// one starts inherit that. Where the process was started without one of its standard streams (`>&-`), that
/// stream becomes /dev/null: otherwise the next file to be opened, for example a checkpoint, would receive
/// printed output.
void secure_standard_streams();

/// Prints a command's answer to standard output. If the reader closes it early, the rest is dropped. Throws
/// EnvironmentError where it cannot be written for another reason, for example a full disk.
void print_answer(std::string_view text);

/// Prints a message to standard error. Waits at most `seconds` for a reader that does not read, then drops
/// the rest and does not wait again until that reader continues. Ignores every error. Neither allocates nor
/// touches stdio, so any thread may call it in whatever state the process is.
void print_error(std::string_view text, double seconds = 2);

}  // namespace adtrain
