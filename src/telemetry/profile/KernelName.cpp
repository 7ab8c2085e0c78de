#include "telemetry/profile/KernelName.h"

namespace adtrain {
namespace {

constexpr std::string_view kAnonymous = "(anonymous namespace)::";

void remove_all(std::string& text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) {
    text.erase(at, part.size());
  }
}

/// The name in front of the parameters of a demangled function; all of it where it has none.
std::string_view without_parameters(std::string_view name) {
  int depth = 0;  // of template arguments, which may hold functions with parameters
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

}  // namespace

std::string kernel_name(std::string_view full, size_t most) {
  // Copies and fills have a space before their parenthesis, functions have none.
  if (full.starts_with("Mem")) return cut_to(full, most);
  std::string name(full);
  remove_all(name, kAnonymous);
  name = without_parameters(name);
  if (name.starts_with("void ")) name.erase(0, 5);
  for (const std::string_view known : {"at::native::", "adtrain::gpu::", "adtrain::", "c10::", "std::"}) {
    remove_all(name, known);
  }
  return cut_to(name, most);
}

std::string cut_to(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  constexpr std::string_view kMore = "…";
  size_t end = most > 0 ? most - 1 : 0;  // "…" is one column wide
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) += kMore;
}

}  // namespace adtrain
