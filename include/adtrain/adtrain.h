#pragma once

#include <string>

/// What a program that embeds the trainer includes. Everything else is internal and may change.
namespace adtrain {

/// The version of this build, "0.1.0".
std::string version();

/// What the program `adtrain` does with its command line: `adtrain config.yaml`, `adtrain collect …`,
/// `adtrain evaluate …`, `adtrain validate …`, `adtrain env`. Returns the exit code (docs/exit-codes.md);
/// errors go to standard error. Not thread-safe: once at a time in a process, since launchers, signals and
/// collectives belong to the process.
int run_command_line(int argc, const char* const* argv);

}  // namespace adtrain
