#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace adtrain {

/// The keys by what other training programs call them, in lower case with underscores.
const std::map<std::string, std::string, std::less<>>& other_names();

/// The key that stands for what other training programs call `name`: "lr" for "learning_rate" or
/// "learning-rate". Empty where none is known. Units may differ: "epochs" leads to train_timesteps, which are
/// optimizer steps.
std::string key_called(std::string_view name);

}  // namespace adtrain
