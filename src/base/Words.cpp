#include "base/Words.h"

#include <algorithm>

namespace adtrain {

std::string trimmed(std::string_view text) {
  constexpr const char* kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kSpace) - first + 1));
}

std::vector<std::string> between_commas(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(trimmed(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace adtrain
