#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include "base/RunningTime.h"
#include "environments/worker/LogTail.h"
#include "environments/worker/WorkerMessage.h"
#include "environments/worker/WorkerOptions.h"

namespace adtrain {

/// A Python process that plays environments, and the socket to it.
///
/// It has a process group of its own, so that what it starts ends with it, and a terminal's signals reach
/// adtrain alone. It is killed when the thread that started it ends. Nothing waits for it longer than
/// env_timeout. All that it prints goes into a pipe, which is read while it is waited for; the last lines are
/// part of errors. For one thread at a time.
class WorkerProcess {
 public:
  /// Says in errors what it was asked to do: "stepping 8 environments".
  using Description = std::function<std::string()>;

  /// Starts it and does not wait. Throws ConfigError where env_python cannot be started.
  explicit WorkerProcess(const WorkerOptions& options);
  /// Asks it to close its environments, and ends it.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  /// Its first line. Throws WorkerFault where it ends or hangs before, as all that waits for an answer does.
  nlohmann::json hello();
  /// Tells it where environments lie in the segment that `file` is.
  void lay_out(const nlohmann::json& layout, int file);
  /// Asks for something. Returns the request's number.
  uint32_t ask(WorkerMessage::Kind kind, size_t half);
  /// Waits until the request is done, or returns the fault that the worker reports instead.
  std::optional<nlohmann::json> await(uint32_t number, const Description& doing);

 private:
  using Deadline = RunningDeadline;

  void send(const void* bytes, size_t size, int file = -1);
  void receive(void* bytes, size_t size, Deadline& deadline, const Description& doing);
  nlohmann::json receive_line(std::string begun, Deadline& deadline, const Description& doing);
  /// Reads what it has printed until now.
  void drain();
  /// Waits for its end. Nothing where it has not come after `seconds`.
  std::optional<int> ended_within(double seconds);
  void kill_group(int signal) const;
  [[noreturn]] void fail_as_it_ended(const Description& doing);
  [[noreturn]] void fail_as_it_hangs(const Description& doing);
  std::string name() const;

  WorkerOptions options_;
  int socket_ = -1;
  int output_ = -1;
  pid_t process_ = -1;  ///< −1 after it was waited for
  uint32_t number_ = 0;
  LogTail tail_;
};

}  // namespace adtrain
