#include "environments/worker/LogTail.h"

#include <utility>

#include "base/Text.h"

namespace adtrain {
namespace {

constexpr size_t kLongestLine = 1000;  // bytes

}  // namespace

void LogTail::add(std::string_view bytes) {
  for (const char letter : bytes) {
    if (letter == '\n') {
      end_line();
    } else if (current_.size() <= kLongestLine) {
      current_ += letter;
    }
  }
}

void LogTail::end_line() {
  lines_.push_back(std::exchange(current_, ""));
  while (lines_.size() > most_lines_) lines_.pop_front();
}

std::string LogTail::text() const {
  std::deque<std::string> all = lines_;
  if (!current_.empty()) all.push_back(current_);
  while (all.size() > most_lines_) all.pop_front();
  std::string text;
  for (const std::string& line : all) text += (text.empty() ? "  " : "\n  ") + abridged(line, kLongestLine);
  return text;
}

}  // namespace adtrain
