#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

#include <c10/util/Exception.h>

/// Converts between torch's c10d and adtrain's types.
namespace adtrain {

/// Never 0, which c10d takes for "no limit".
inline std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

/// The first line of torch's or gloo's message: the rest is a backtrace.
inline std::string reason_of(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace adtrain
