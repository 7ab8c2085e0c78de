#include <optional>
#include <string>

#include "fuzz/Targets.h"
#include "watchdog/WatchMessage.h"

namespace adtrain::fuzz {

void watch(std::string_view bytes) {
  const std::optional<WatchMessage> message = read_watch_message(bytes);
  if (!message) return;
  const std::string line = line_of(*message);
  require(line.find('\n') == std::string::npos, "a message is one line");
  require(line.size() <= kLongestLine, "a line is not longer than what is read");
  const std::optional<WatchMessage> again = read_watch_message(line);
  require(again.has_value() && again->index() == message->index(),
          "what was written is read as the same kind");
}

}  // namespace adtrain::fuzz
