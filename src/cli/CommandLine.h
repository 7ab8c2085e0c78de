#pragma once

namespace adtrain {

/// Runs the program `adtrain` with its command line: `adtrain config.yaml`, `adtrain collect …`, `adtrain
/// evaluate …`, `adtrain validate …`, `adtrain env`. Returns the exit code (docs/exit-codes.md); errors go to
/// standard error. Not thread-safe: one call at a time per process, since launchers, signals and collectives
/// belong to the process.
int run_command_line(int argc, const char* const* argv);

}  // namespace adtrain
