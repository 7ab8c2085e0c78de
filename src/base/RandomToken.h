#pragma once

#include <string>

namespace adtrain {

/// 16 random hexadecimal digits, for a name that nobody else uses. Not a secret. Thread-safe.
std::string random_token();

}  // namespace adtrain
