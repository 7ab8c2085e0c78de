#pragma once

#include <functional>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace adtrain {

/// Says where an environment is in its play, of the one with this number in its worker; without a number,
/// where all of them are: "task 3 (Reacher-v4), place 5, episode 2, step 17".
using WhereIs = std::function<std::string(std::optional<int64_t> place)>;

/// Throws WorkerFault for what a worker reports of itself: an exception of the user's code with its
/// traceback, a value of a wrong shape or type, or a Python that lacks something. `where` may be empty before
/// anything is played.
[[noreturn]] void throw_fault(const nlohmann::json& fault, const std::string& env_worker,
                              const WhereIs& where);

}  // namespace adtrain
