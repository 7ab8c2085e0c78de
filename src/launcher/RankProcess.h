#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "launcher/RankEnd.h"

namespace adtrain {

/// One rank of a local launch: a process of this program or of another. It has a process group of its own, so
/// that signals from a terminal to its foreground group reach the rank only once, through the launcher. When
/// the launcher dies, the rank is asked to stop (USR1), or dies where it does not handle that signal yet.
class RankProcess {
 public:
  struct Plan {
    int64_t rank = 0;
    std::filesystem::path program = "/proc/self/exe";
    std::string name = "adtrain";              ///< the program's argv[0]
    std::vector<std::string> arguments;        ///< after the program's name
    std::vector<std::string> environment;      ///< the whole environment, "NAME=value"
    std::optional<std::filesystem::path> log;  ///< appended to; none: the launcher's own output
    sigset_t blocked_signals{};                ///< its signal mask at the start
    std::vector<int> inherited;                ///< descriptors that it inherits under the same numbers
  };
  /// Starts the process. Throws EnvironmentError where the log cannot be written or no process can be
  /// created.
  explicit RankProcess(const Plan& plan);
  /// Kills it, if it still runs.
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  RankProcess& operator=(RankProcess&&) = delete;

  int64_t rank() const { return rank_; }
  bool running() const { return process_ > 0; }
  /// Does nothing where it has ended.
  void send(int signal) const;
  /// How it has ended, returned once; nothing while it runs.
  std::optional<RankEnd> take_end();

 private:
  int64_t rank_;
  pid_t process_;  ///< 0 after take_end() has returned its end
};

}  // namespace adtrain
