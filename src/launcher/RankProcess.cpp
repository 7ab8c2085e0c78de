#include "launcher/RankProcess.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/Error.h"

namespace adtrain {
namespace {

constexpr int kNotStarted = 127;  ///< as shells report it

/// A descriptor that its destructor closes; −1 for none.
class OutputFile {
 public:
  explicit OutputFile(const std::optional<std::filesystem::path>& path) {
    if (!path) return;
    fd_ = ::open(path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ >= 0) return;
    throw EnvironmentError(fmt::format("cannot write {} ({}); make room there, or choose another folder",
                                       path->string(), std::generic_category().message(errno)));
  }
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

/// The null-terminated array that execve() takes; it points into `words`.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Runs in the new process between fork() and execve(). There only async-signal-safe functions are allowed:
/// nothing that allocates.
[[noreturn]] void become_rank(char* const* arguments, char* const* environment, int output, pid_t launcher,
                              const RankProcess::Plan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != launcher) _exit(kNotStarted);  // the launcher died before PR_SET_PDEATHSIG took effect
  setpgid(0, 0);
  signal(SIGTTOU, SIG_IGN);  // lets a background group write to the terminal, whatever `stty tostop` says
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  if (output >= 0) {
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  for (const int descriptor : plan.inherited) fcntl(descriptor, F_SETFD, 0);
  for (const int ignored : {SIGPIPE, SIGXFSZ}) signal(ignored, SIG_DFL);  // the launcher may, for itself
  sigprocmask(SIG_SETMASK, &plan.blocked_signals, nullptr);
  execve(plan.program.c_str(), arguments, environment);
  constexpr char kComplaint[] = "adtrain launch: cannot start the program of a rank\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kComplaint, sizeof kComplaint - 1);
  _exit(kNotStarted);
}

}  // namespace

RankProcess::RankProcess(const Plan& plan) : rank_(plan.rank), process_(0) {
  const OutputFile log(plan.log);
  std::vector<std::string> words = plan.arguments;
  words.insert(words.begin(), plan.name);
  std::vector<std::string> variables = plan.environment;
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> environment = pointers_to(variables);
  const pid_t launcher = getpid();
  process_ = fork();
  if (process_ == 0) {
    become_rank(arguments.data(), environment.data(), log.get(), launcher, plan);
  }
  if (process_ < 0) {
    throw EnvironmentError(
        fmt::format("cannot start the process of rank {} ({}); start fewer at once, or raise `ulimit -u`",
                    rank_, std::generic_category().message(errno)));
  }
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_), process_(std::exchange(other.process_, 0)) {}

RankProcess::~RankProcess() {
  if (!running()) return;
  send(SIGKILL);
  waitpid(process_, nullptr, 0);
}

void RankProcess::send(int signal) const {
  if (running()) kill(process_, signal);
}

std::optional<RankEnd> RankProcess::take_end() {
  int status = 0;
  if (!running() || waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
  process_ = 0;
  return RankEnd::of(rank_, status);
}

}  // namespace adtrain
