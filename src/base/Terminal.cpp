#include "base/Terminal.h"

#include <algorithm>

#include <sys/ioctl.h>

namespace adtrain {

std::optional<int> terminal_columns(int output) {
  winsize size{};
  if (ioctl(output, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

int columns_of(std::string_view text) {
  const auto begins_character = [](char byte) { return (byte & 0xC0) != 0x80; };
  return static_cast<int>(std::ranges::count_if(text, begins_character));
}

}  // namespace adtrain
