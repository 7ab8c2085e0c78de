#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace adtrain {

/// The last lines of what a process prints, however much that is.
class LogTail {
 public:
  explicit LogTail(size_t most_lines = 20) : most_lines_(most_lines) {}

  void add(std::string_view bytes);
  /// The lines, each on its own and indented; a line that has not ended counts. "" where nothing was printed.
  std::string text() const;

 private:
  void end_line();

  size_t most_lines_;
  std::deque<std::string> lines_;
  std::string current_;
};

}  // namespace adtrain
