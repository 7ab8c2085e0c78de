/// OpenMP's threads wait for each other by spinning, in GNU's runtime for up to 300 000 iterations: several
/// milliseconds, during which a thread that shares its core with another program keeps the one that it waits
/// for from running. A training step has hundreds of such waits. Here a thread sleeps after 700 iterations,
/// well below a millisecond: that costs little, whether the machine is otherwise idle or not
/// (docs/benchmarks.md).
///
/// The runtime reads GOMP_SPINCOUNT when it is loaded, before any code of this program could set it. So the
/// program executes itself once more with the variable set: in a function of the .preinit_array, which the
/// loader calls when all libraries are mapped but none is initialised yet, so that little is done twice. The
/// process stays the same. A user's own GOMP_SPINCOUNT or OMP_WAIT_POLICY is respected.
#include <cstddef>

#include <sys/auxv.h>
#include <unistd.h>

namespace {

constexpr const char* kBriefly = "GOMP_SPINCOUNT=700";

/// Whether `entry` is "NAME=…". The C library is not initialised yet.
bool sets(const char* entry, const char* name) {
  while (*name != '\0' && *entry == *name) {
    ++entry;
    ++name;
  }
  return *name == '\0' && *entry == '=';
}

/// Where anything is unusual the program continues unchanged.
__attribute__((no_sanitize("address", "thread", "undefined"))) void wait_briefly(int /*argc*/, char** argv,
                                                                                 char** environment) {
  constexpr size_t kMostVariables = 4096, kLongestPath = 4096;
  static char* extended[kMostVariables];
  static char program[kLongestPath];
  // The program was started as an argument of the loader, and /proc/self/exe names the loader.
  if (getauxval(AT_BASE) == 0) return;
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    const char* entry = environment[count];
    if (sets(entry, "GOMP_SPINCOUNT") || sets(entry, "OMP_WAIT_POLICY")) return;
    if (count + 2 >= kMostVariables) return;
    extended[count] = environment[count];
  }
  extended[count] = const_cast<char*>(kBriefly);
  // Executes the program by its own name, which `ps` then shows.
  const ssize_t length = readlink("/proc/self/exe", program, kLongestPath);
  if (length <= 0 || static_cast<size_t>(length) >= kLongestPath) return;
  execve(program, argv, extended);
}

__attribute__((section(".preinit_array"), used)) void (*const before_all_libraries)(int, char**,
                                                                                    char**) = wait_briefly;

}  // namespace
