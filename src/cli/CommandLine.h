#pragma once

namespace adtrain {

/// What the program `adtrain` does with its command line: `adtrain config.yaml`, `adtrain collect …`,
/// `adtrain evaluate …`, `adtrain validate …`, `adtrain env`. Returns the exit code (docs/exit-codes.md);
/// errors go to standard error. Not thread-safe: once at a time in a process, since launchers, signals and
/// collectives belong to the process.
int run_command_line(int argc, const char* const* argv);

}  // namespace adtrain
