#include "environments/worker/WorkerCommand.h"

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include "base/SharedFile.h"

namespace adtrain {
namespace {

constexpr int kSocketOfWorker = 3;

/// The words of env_python; one, where all of it is a file's name.
std::vector<std::string> words_of(const std::string& python) {
  std::error_code unreadable;
  if (std::filesystem::is_regular_file(python, unreadable)) return {python};
  std::vector<std::string> words;
  std::istringstream text(python);
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

/// What posix_spawn is told beside the command.
class SpawnSettings {
 public:
  SpawnSettings(int socket, int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, socket, kSocketOfWorker);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_init(&attributes_);
    // Ranks ignore and block signals that Python and what it starts should have as usual.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int start(char* const* command, pid_t& process) const {
    return posix_spawnp(&process, command[0], &actions_, &attributes_, command, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

int start_worker(const WorkerOptions& options, int socket, int output, pid_t& process) {
  std::vector<std::string> words = words_of(options.env_python);
  words.push_back(shared_file("environment_worker.py", "that environments run under").string());
  words.push_back(std::to_string(kSocketOfWorker));
  words.push_back(options.env_worker.value_or(""));
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  return SpawnSettings(socket, output).start(command.data(), process);
}

}  // namespace adtrain
