#pragma once

#include <string>
#include <string_view>

namespace adtrain {

/// A kernel's name for people: without return type, parameters and the namespaces that every second kernel
/// has, and at most `most` characters, of which the last is "…" where it was longer. Other names, such as
/// "Memcpy DtoD (Device -> Device)", are only cut.
std::string kernel_name(std::string_view full, size_t most);

/// The first `most` bytes of UTF-8 text, or fewer to end with a whole character, and "…" where it was longer.
std::string cut_to(std::string_view text, size_t most);

}  // namespace adtrain
