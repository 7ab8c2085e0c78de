#pragma once

#include <string>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace adtrain {

/// A process that waits, as a launcher would start it: with these variables and no others.
class Sleeper {
 public:
  explicit Sleeper(std::vector<std::string> variables) : process_(fork()) {
    if (process_ != 0) return;
    prctl(PR_SET_PDEATHSIG,
          SIGKILL);  // a death test ends without destructors, and waits for who holds its output
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    char name[] = "sleep", seconds[] = "60";
    char* const arguments[] = {name, seconds, nullptr};
    execve("/bin/sleep", arguments, environment.data());
    _exit(127);
  }
  ~Sleeper() { end(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t process() const { return process_; }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_;
};

}  // namespace adtrain
