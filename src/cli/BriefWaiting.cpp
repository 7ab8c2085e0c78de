/// OpenMP's threads wait for each other by spinning, in GNU's runtime for up to 300 000 turns: several
/// milliseconds, in which a thread that shares its core with another program keeps the one it waits for from
/// running. A training step has hundreds of such waits. After 700 turns, well below a millisecond, a
/// thread sleeps here: that loses little on a quiet machine, and little on one that is not
/// (docs/benchmarks.md).
///
/// The runtime reads GOMP_SPINCOUNT when it is loaded, before any code of ours could set it. So the program
/// starts itself once more with the variable set: by a function of the .preinit_array, which the loader calls
/// when all libraries are mapped but none has been initialised yet, so that little is done twice. The process
/// stays the same one. Whoever sets GOMP_SPINCOUNT or OMP_WAIT_POLICY gets what he asks for.
#include <cstddef>

#include <sys/auxv.h>
#include <unistd.h>

namespace {

constexpr const char* kBriefly = "GOMP_SPINCOUNT=700";

/// Whether `entry` is "NAME=…". The C library is not to be relied on yet.
bool sets(const char* entry, const char* name) {
  while (*name != '\0' && *entry == *name) {
    ++entry;
    ++name;
  }
  return *name == '\0' && *entry == '=';
}

/// Where anything is out of the ordinary the program goes on as it is.
__attribute__((no_sanitize("address", "thread", "undefined"))) void wait_briefly(int /*argc*/, char** argv,
                                                                                 char** environment) {
  constexpr size_t kMostVariables = 4096, kLongestPath = 4096;
  static char* extended[kMostVariables];
  static char program[kLongestPath];
  // Started as an argument of the loader, which then is what /proc/self/exe names.
  if (getauxval(AT_BASE) == 0) return;
  size_t count = 0;
  for (; environment[count] != nullptr; ++count) {
    const char* entry = environment[count];
    if (sets(entry, "GOMP_SPINCOUNT") || sets(entry, "OMP_WAIT_POLICY")) return;
    if (count + 2 >= kMostVariables) return;
    extended[count] = environment[count];
  }
  extended[count] = const_cast<char*>(kBriefly);
  // By its own name, which `ps` then shows.
  const ssize_t length = readlink("/proc/self/exe", program, kLongestPath);
  if (length <= 0 || static_cast<size_t>(length) >= kLongestPath) return;
  execve(program, argv, extended);
}

__attribute__((section(".preinit_array"), used)) void (*const before_all_libraries)(int, char**,
                                                                                    char**) = wait_briefly;

}  // namespace
