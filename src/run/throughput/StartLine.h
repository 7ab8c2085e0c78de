#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace adtrain {

/// Lets processes that know nothing of each other begin at the same moment: each reports that it is ready,
/// then waits. This is the end of the process that has started them: two unnamed pipes. For one thread.
class StartLine {
 public:
  /// Throws EnvironmentError where the system gives no pipes.
  StartLine();
  ~StartLine();
  StartLine(const StartLine&) = delete;
  StartLine& operator=(const StartLine&) = delete;

  /// The descriptors that each process inherits under the same numbers, and the variable that names them.
  std::vector<int> descriptors() const;
  std::string variable() const;
  /// How many have become ready since the last call. Never blocks.
  int64_t newly_ready();
  /// All that are ready, and those to come, go.
  void go();

 private:
  int ready_[2] = {-1, -1}, go_[2] = {-1, -1};
};

/// In a process that may have been started so: reports that it is ready, and returns when all are to begin.
/// Returns at once where nobody keeps a start line, and false where `give_up` returned true meanwhile.
bool await_start(const std::function<bool()>& give_up);

}  // namespace adtrain
