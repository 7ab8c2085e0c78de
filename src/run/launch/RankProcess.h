#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

#include "run/launch/RankEnd.h"

namespace adtrain {

/// One rank of a local launch: a process of this same program or of another, in a process group of its own,
/// so that what a terminal sends to its foreground group reaches the rank through the launcher alone, and
/// once. When the launcher dies, the rank is asked to stop (USR1), or dies where it has not come to hear
/// that.
class RankProcess {
 public:
  struct Plan {
    int64_t rank = 0;
    std::filesystem::path program = "/proc/self/exe";
    std::string name = "adtrain";              ///< by which the program knows itself
    std::vector<std::string> arguments;        ///< behind the program's name
    std::vector<std::string> environment;      ///< all of it, "NAME=value"
    std::optional<std::filesystem::path> log;  ///< appended to; none: the launcher's own output
    sigset_t blocked_signals{};                ///< with which it starts
    std::vector<int> inherited;                ///< descriptors that it keeps, under the same numbers
  };
  /// Starts it. Throws EnvironmentError where the log cannot be written or no process is to be had.
  explicit RankProcess(const Plan& plan);
  /// Kills it, if it still runs.
  ~RankProcess();
  RankProcess(RankProcess&& other) noexcept;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  RankProcess& operator=(RankProcess&&) = delete;

  int64_t rank() const { return rank_; }
  bool running() const { return process_ > 0; }
  /// Nothing where it has ended.
  void send(int signal) const;
  /// How it has ended, once; nothing while it runs.
  std::optional<RankEnd> take_end();

 private:
  int64_t rank_;
  pid_t process_;  ///< 0 once its end was taken
};

}  // namespace adtrain
