#pragma once

#include <string>
#include <string_view>

namespace adtrain {

/// The key that means what other training programs call `name`: "lr" for "learning_rate" or "learning-rate".
/// Empty where none is known.
std::string key_called(std::string_view name);

}  // namespace adtrain
