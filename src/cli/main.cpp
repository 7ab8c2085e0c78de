#include <cstring>
#include <initializer_list>

#include "cli/CommandLine.h"
#include "distributed/HeldTermination.h"

namespace {

/// A rank of several: its launcher has told it which.
bool is_launched(const char* const* environment) {
  for (; *environment != nullptr; ++environment) {
    for (const char* name : {"RANK=", "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID="}) {
      if (std::strncmp(*environment, name, std::strlen(name)) == 0) return true;
    }
  }
  return false;
}

void hold_termination(int, char**, char** environment) {
  if (is_launched(environment)) adtrain::held_termination::begin();
}

/// What the system calls before any library's constructors: libtorch's take four tenths of a second, in which
/// a rank of the same launch may fail.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_constructors)(int, char**,
                                                                                char**) = hold_termination;

}  // namespace

int main(int argc, char** argv) {
  return adtrain::run_command_line(argc, argv);
}
