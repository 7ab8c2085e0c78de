#include "data/reader/ReaderProcess.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Error.h"
#include "data/reader/Message.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "adtrain-history-reader";

fs::path program() {
  std::error_code unreadable;
  const fs::path self = fs::read_symlink("/proc/self/exe", unreadable);
  std::vector<fs::path> candidates = {self.parent_path() / kProgram};
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty()) candidates.push_back(fs::path(folder) / kProgram);
  }
  candidates.emplace_back(ADTRAIN_HISTORY_READER);
  for (const fs::path& candidate : candidates) {
    if (::access(candidate.c_str(), X_OK) == 0 && fs::is_regular_file(candidate, unreadable))
      return candidate;
  }
  throw EnvironmentError(fmt::format(
      "{} is neither beside {}, nor in a folder of PATH, nor at {}; expected the program that reads history "
      "files where it was built, or copied together with adtrain",
      kProgram, self.string(), ADTRAIN_HISTORY_READER));
}

/// How the other program starts: with the socket as its standard input, and isolated from the signals that a
/// terminal or a launcher sends to whole process groups, since this process decides when it ends.
class SpawnPlan {
 public:
  explicit SpawnPlan(int socket) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, socket, STDIN_FILENO);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes_);
    sigset_t blocked;
    sigemptyset(&blocked);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) sigaddset(&blocked, signal);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  /// What posix_spawn returns: 0, or an error number.
  int start(const fs::path& path, pid_t& process) const {
    char* arguments[] = {const_cast<char*>(path.c_str()), nullptr};
    return posix_spawn(&process, path.c_str(), &actions_, &attributes_, arguments, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

[[noreturn]] void fail_to_start(const fs::path& path, int reason) {
  throw EnvironmentError(
      fmt::format("{} cannot be started ({}); it reads history files for adtrain; expected room for one "
                  "process more (ulimit -u)",
                  path.string(), std::strerror(reason)));
}

}  // namespace

ReaderProcess::ReaderProcess() {
  const fs::path path = program();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail_to_start(path, errno);
  const int failure = SpawnPlan(ends[1]).start(path, process_);
  ::close(ends[1]);
  socket_ = ends[0];
  if (failure == 0) return;
  ::close(socket_);
  fail_to_start(path, failure);
}

ReaderProcess::~ReaderProcess() {
  ::close(socket_);
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ReaderProcess::ask(const nlohmann::json& request, const std::string& task) {
  task_ = task;
  try {
    if (!send_message(socket_, request)) fail_as_it_ended();
  } catch (const MessageTooLong& error) {
    throw DataError(fmt::format("{}: found a request of {}: shorten names and settings, or leave some out",
                                task_, error.what()));
  }
}

nlohmann::json ReaderProcess::answer() {
  std::optional<nlohmann::json> message = receive_message(socket_);
  if (!message) fail_as_it_ended();
  const auto error = message->find("error");
  if (error != message->end()) throw DataError(error->is_string() ? error->get<std::string>() : task_);
  return std::move(*message);
}

void ReaderProcess::bytes(void* to, size_t size) {
  if (!receive_bytes(socket_, to, size)) fail_as_it_ended();
}

void ReaderProcess::fail_as_it_ended() {
  int status = 0;
  if (process_ >= 0) {
    ::shutdown(socket_, SHUT_RDWR);  // it may have closed its side, or sent garbage, and still run
    pid_t ended = 0;
    constexpr int kPatience = 100;
    for (int i = 0; i < kPatience && (ended = ::waitpid(process_, &status, WNOHANG)) == 0; ++i)
      ::usleep(10'000);
    if (ended == 0) {
      ::kill(process_, SIGKILL);
      while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
      }
      status = 0;
    }
    process_ = -1;
  }
  constexpr const char* kAdvice = "the file is damaged; fetch or collect it again";
  if (!WIFSIGNALED(status)) {
    if (WEXITSTATUS(status) == 127) {
      throw EnvironmentError(
          fmt::format("{}: {} does not start; expected the libraries that it was built with; start it by "
                      "hand to see which is missing",
                      task_, program().string()));
    }
    throw DataError(fmt::format("{} came to no answer; {}", task_, kAdvice));
  }
  const int signal = WTERMSIG(status);
  if (signal == SIGKILL) {
    throw EnvironmentError(
        fmt::format("{}: {} was killed from outside (signal 9), as the system does where memory runs out; "
                    "expected it to live; make room and start again",
                    task_, kProgram));
  }
  if (signal == SIGXCPU)
    throw DataError(fmt::format("{} took the HDF5 library more processor time than a whole file needs; {}",
                                task_, kAdvice));
  throw DataError(fmt::format("{} crashed the HDF5 library (signal {}, {}); {}", task_, signal,
                              strsignal(signal), kAdvice));
}

}  // namespace adtrain
