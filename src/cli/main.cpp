#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include <unistd.h>

#include "base/ProcessEnd.h"
#include "cli/CommandLine.h"
#include "collectives/mpi/MpiSession.h"
#include "launch/HeldTermination.h"

namespace {

/// Whether this process is one of several ranks: its launcher has set its rank.
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

/// The loader calls this before any library's constructors. libtorch's take 0.4 s, during which a rank of the
/// same launch may fail.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_constructors)(int, char**,
                                                                                char**) = hold_termination;

/// libtorch's profiler reports as an error that there is no GPU. It reads its level from the environment,
/// which may only be written while there are no other threads.
void silence_profiler_without_gpu() {
  constexpr const char *kDriver = "/dev/nvidiactl", *kSilent = "99";
  if (access(kDriver, F_OK) != 0) setenv("KINETO_LOG_LEVEL", kSilent, /*overwrite=*/0);
}

}  // namespace

int main(int argc, char** argv) {
  silence_profiler_without_gpu();
  const int code = adtrain::run_command_line(argc, argv);
  adtrain::MpiSession::finish();
  adtrain::end_process(code);
}
