#include "run/throughput/StartLine.h"

#include <cerrno>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Words.h"
#include "launch/LaunchContext.h"

namespace adtrain {
namespace {

constexpr const char* kVariable = "ADTRAIN_START_LINE";

void close_end(int& descriptor) {
  if (descriptor >= 0) close(std::exchange(descriptor, -1));
}

std::optional<int> number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

StartLine::StartLine() {
  if (pipe2(ready_, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(go_, O_CLOEXEC) == 0) return;
  const int reason = errno;
  close_end(ready_[0]);
  close_end(ready_[1]);
  throw EnvironmentError(
      fmt::format("cannot create a pipe ({}); raise `ulimit -n`", std::generic_category().message(reason)));
}

StartLine::~StartLine() {
  for (int* const end : {&ready_[0], &ready_[1], &go_[0], &go_[1]}) close_end(*end);
}

std::vector<int> StartLine::descriptors() const {
  return {ready_[1], go_[0]};
}

std::string StartLine::variable() const {
  return fmt::format("{}={},{}", kVariable, ready_[1], go_[0]);
}

int64_t StartLine::newly_ready() {
  char reports[64];
  const ssize_t count = read(ready_[0], reports, sizeof reports);
  return std::max<ssize_t>(count, 0);
}

void StartLine::go() {
  close_end(go_[1]);  // each that waits reads the end of the pipe
}

bool await_start(const std::function<bool()>& give_up) {
  const std::vector<std::string> words = between_commas(process_environment(kVariable).value_or(""));
  if (words.size() != 2) return true;
  const std::optional<int> ready = number_in(words[0]), go = number_in(words[1]);
  if (!ready || !go) return true;
  const char report = 1;
  if (write(*ready, &report, 1) != 1) return true;  // nobody keeps it any more
  constexpr int kLookMilliseconds = 100;
  for (;;) {
    if (give_up()) return false;
    pollfd end = {*go, POLLIN, 0};
    const int changed = poll(&end, 1, kLookMilliseconds);
    if (changed > 0 || (changed < 0 && errno != EINTR)) return true;
  }
}

}  // namespace adtrain
