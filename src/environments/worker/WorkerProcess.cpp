#include "environments/worker/WorkerProcess.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Clock.h"
#include "base/Text.h"
#include "environments/worker/WorkerCommand.h"
#include "environments/worker/WorkerFault.h"

namespace adtrain {
namespace {

constexpr int kMillisecondsALook = 200;
constexpr double kSecondsToLeave = 5;
constexpr double kSecondsForAStack = 2;
constexpr size_t kLinesOfStacks = 200;

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerOptions& options) : options_(options) {
  int sockets[2], pipe[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    throw EnvironmentError(
        fmt::format("no socket for an environment worker ({}); raise ulimit -n", std::strerror(errno)));
  }
  if (pipe2(pipe, O_CLOEXEC) != 0) {
    const int reason = errno;
    close(sockets[0]);
    close(sockets[1]);
    throw EnvironmentError(
        fmt::format("no pipe for an environment worker ({}); raise ulimit -n", std::strerror(reason)));
  }
  socket_ = sockets[0];
  output_ = pipe[0];
  fcntl(output_, F_SETFL, O_NONBLOCK);
  const int failure = start_worker(options, sockets[1], pipe[1], process_);
  close(sockets[1]);
  close(pipe[1]);
  if (failure == 0) return;
  close(socket_);
  close(output_);
  throw ConfigError(fmt::format(
      "env_python: found '{}', which cannot be started ({}); expected a Python with numpy and gymnasium, "
      "such as python3 or /opt/venv/bin/python",
      abridged(options.env_python), std::strerror(failure)));
}

WorkerProcess::~WorkerProcess() {
  const WorkerMessage farewell{.kind = WorkerMessage::kClose};
  // It may be gone, or in the middle of something.
  ::send(socket_, &farewell, sizeof farewell, MSG_NOSIGNAL | MSG_DONTWAIT);
  close(socket_);
  if (process_ > 0 && !ended_within(kSecondsToLeave)) {
    kill_group(SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

std::string WorkerProcess::name() const {
  return fmt::format("the environment worker {}", options_.env_worker.value_or(""));
}

nlohmann::json WorkerProcess::hello() {
  const Description doing = [] {
    return std::string("starting, importing and making its first environment");
  };
  Deadline deadline(options_.env_timeout);
  return receive_line("", deadline, doing);
}

void WorkerProcess::lay_out(const nlohmann::json& layout, int file) {
  const std::string text = layout.dump();
  const WorkerMessage message{.kind = WorkerMessage::kLayout, .number = static_cast<uint32_t>(text.size())};
  send(&message, sizeof message, file);
  send(text.data(), text.size());
}

uint32_t WorkerProcess::ask(WorkerMessage::Kind kind, size_t half) {
  const WorkerMessage message{.kind = kind, .half = static_cast<uint8_t>(half), .number = ++number_};
  send(&message, sizeof message);
  return number_;
}

std::optional<nlohmann::json> WorkerProcess::await(uint32_t number, const Description& doing) {
  Deadline deadline(options_.env_timeout);
  WorkerMessage message;
  // Answers to requests that nobody awaits any more are passed over.
  while (message.kind != WorkerMessage::kDone || message.number != number) {
    receive(&message, sizeof message, deadline, doing);
    if (message.kind != '{') continue;
    return receive_line(std::string(reinterpret_cast<const char*>(&message), sizeof message), deadline,
                        doing);
  }
  return std::nullopt;
}

/// Errors are left to who waits for the answer: a worker that has reported a fault and ended is not yet read.
void WorkerProcess::send(const void* bytes, size_t size, int file) {
  iovec part{const_cast<void*>(bytes), size};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  if (file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
  }
  while (sendmsg(socket_, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

void WorkerProcess::receive(void* bytes, size_t size, Deadline& deadline, const Description& doing) {
  auto* to = static_cast<char*>(bytes);
  while (size > 0) {
    pollfd events[] = {{socket_, POLLIN, 0}, {output_, POLLIN, 0}};
    poll(events, std::size(events), kMillisecondsALook);
    if ((events[1].revents & POLLIN) != 0) {
      drain();
    } else if (events[1].revents != 0) {
      close(output_);  // nothing will be printed any more; poll() ignores a negative descriptor
      output_ = -1;
    }
    if ((events[0].revents & (POLLIN | POLLHUP)) != 0) {
      const ssize_t received = recv(socket_, to, size, MSG_DONTWAIT);
      if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) fail_as_it_ended(doing);
      if (received > 0) {
        to += received;
        size -= static_cast<size_t>(received);
      }
    }
    if (size > 0 && deadline.passed()) fail_as_it_hangs(doing);
  }
}

nlohmann::json WorkerProcess::receive_line(std::string line, Deadline& deadline, const Description& doing) {
  // Byte by byte would be slow for a hello with many bounds: what is there is looked at first.
  constexpr size_t kChunk = 1 << 16, kLongestLine = size_t{1} << 28;
  while (line.size() < kLongestLine && (line.empty() || line.back() != '\n')) {
    char first = 0;
    receive(&first, 1, deadline, doing);
    line += first;
    if (first == '\n') break;
    std::string chunk(kChunk, '\0');
    const ssize_t there = recv(socket_, chunk.data(), chunk.size(), MSG_PEEK | MSG_DONTWAIT);
    if (there <= 0) continue;
    const size_t end = chunk.find('\n');
    const size_t size = std::min(end == std::string::npos ? end : end + 1, static_cast<size_t>(there));
    receive(chunk.data(), size, deadline, doing);
    line.append(chunk, 0, size);
  }
  nlohmann::json content = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (content.is_object()) return content;
  throw WorkerFault(ExitCode::kEnvironment,
                    fmt::format("{} sent '{}'; expected a line of JSON: env_python must run Python alone",
                                name(), abridged(line)));
}

void WorkerProcess::drain() {
  // Not for ever: somebody may print faster than this reads.
  constexpr int kMostReads = 256;
  char chunk[4096];
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t size = read(output_, chunk, sizeof chunk);
    if (size <= 0) return;
    tail_.add(std::string_view(chunk, static_cast<size_t>(size)));
  }
}

std::optional<int> WorkerProcess::ended_within(double seconds) {
  const adtrain::Deadline deadline(seconds);
  for (;;) {
    drain();  // or it could wait for room in the pipe
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) == process_) {
      kill_group(SIGKILL);  // what it has left behind
      process_ = -1;
      drain();
      return status;
    }
    if (deadline.passed()) return std::nullopt;
    poll(nullptr, 0, 5);
  }
}

void WorkerProcess::kill_group(int signal) const {
  if (process_ > 0) kill(-process_, signal);
}

void WorkerProcess::fail_as_it_ended(const Description& doing) {
  shutdown(socket_, SHUT_RDWR);
  const std::optional<int> status = ended_within(kSecondsToLeave);
  std::string how = "closed its socket";
  std::string advice = "correct the environment and start again";
  if (status) how = how_it_ended(*status);
  if (status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL) {
    advice = "where the system had no memory left, lower eval_batch or env_workers; then start again";
  }
  const std::string lines = tail_.text();
  throw WorkerFault(
      ExitCode::kEnvironment,
      fmt::format("{} {} while it was {}; {}. {}", name(), how, doing(), advice,
                  lines.empty() ? "It printed nothing" : fmt::format("Its last lines:\n{}", lines)));
}

void WorkerProcess::fail_as_it_hangs(const Description& doing) {
  drain();
  tail_ = LogTail(kLinesOfStacks);
  kill_group(SIGUSR1);  // faulthandler prints where each thread is
  const adtrain::Deadline deadline(kSecondsForAStack);
  pollfd event{output_, POLLIN, 0};
  constexpr int kMillisecondsOfSilence = 300;
  bool has_printed = false;
  while (!deadline.passed()) {
    const int ready = poll(&event, 1, kMillisecondsOfSilence);
    if (ready == 1) drain();
    if (ready == 1 && (event.revents & POLLHUP) != 0) break;
    if (ready == 0 && has_printed) break;
    has_printed |= ready == 1;
  }
  kill_group(SIGKILL);
  ended_within(kSecondsToLeave);
  const std::string lines = tail_.text();
  throw WorkerFault(
      ExitCode::kEnvironment,
      fmt::format("{} gave no answer within env_timeout = {:g} s while it was {}, and was ended; correct the "
                  "environment, or raise env_timeout. {}",
                  name(), options_.env_timeout, doing(),
                  lines.empty() ? "It did not say where it was" : fmt::format("Where it was:\n{}", lines)));
}

}  // namespace adtrain
