#include "base/StandardStreams.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Error.h"

namespace adtrain {

void secure_standard_streams() {
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() returns the lowest free descriptor, which is this one.
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDWR);
  }
}

void print_answer(std::string_view text) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE) return;
  throw EnvironmentError(fmt::format("cannot write to standard output ({}); send it where there is room",
                                     std::generic_category().message(errno)));
}

void print_error(std::string_view text, double seconds) {
  // A descriptor that poll() reports writable accepts this many bytes at once, also a pipe (PIPE_BUF is its
  // minimum).
  constexpr size_t kAtOnce = 4096;
  // After a wait in vain there is no further wait for that reader until it reads again.
  static std::atomic<bool> nobody_reads = false;
  const Deadline deadline(nobody_reads ? 0 : seconds);
  while (!text.empty()) {
    pollfd entry = {STDERR_FILENO, POLLOUT, 0};
    const double left = std::max(0.0, deadline.seconds_left());
    const int ready = poll(&entry, 1, static_cast<int>(1e3 * left));
    nobody_reads = ready == 0;
    if (ready == 0 || (ready < 0 && errno != EINTR)) return;
    if (ready < 0) continue;
    const ssize_t written = write(STDERR_FILENO, text.data(), std::min(text.size(), kAtOnce));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace adtrain
