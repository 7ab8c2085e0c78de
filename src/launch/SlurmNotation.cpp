#include "launch/SlurmNotation.h"

#include <regex>

namespace adtrain {

std::string first_host(const std::string& node_list) {
  std::string host;
  bool in_brackets = false;  // brackets hold alternatives: from "[05-09,12]" only "05" is taken
  bool taken = false;
  for (const char letter : node_list) {
    if (letter == '[') {
      in_brackets = true;
      taken = false;
    } else if (letter == ']') {
      in_brackets = false;
    } else if (!in_brackets) {
      if (letter == ',') break;
      host += letter;
    } else if (letter == ',' || letter == '-') {
      taken = true;
    } else if (!taken) {
      host += letter;
    }
  }
  return host;
}

int64_t tasks_on_node(const std::string& tasks_per_node, int64_t node) {
  static const std::regex kGroup(R"((\d{1,9})(?:\(x(\d{1,9})\))?)");
  int64_t covered = 0;  // nodes that the groups so far describe
  for (std::sregex_iterator group(tasks_per_node.begin(), tasks_per_node.end(), kGroup), end; group != end;
       ++group) {
    covered += (*group)[2].matched ? std::stoll((*group)[2]) : 1;
    if (node < covered) return std::stoll((*group)[1]);
  }
  return 0;
}

}  // namespace adtrain
