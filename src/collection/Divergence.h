#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace adtrain {

/// Whether a policy's probabilities and a value are those of networks that have not diverged. Probabilities
/// that were NaN may have become the smallest number, so it is their sum that tells.
bool are_sound(std::span<const float> probabilities, float value);

/// What are_sound() is asked about, for the message.
inline constexpr const char* kOpinions = "probabilities of actions or values of states";

/// Throws NonFiniteError, which names these and source_lr: in a step of a task's histories, after so many
/// rounds of updates, `found` are not finite, such as "actions".
[[noreturn]] void throw_diverged(const std::string& task, int64_t step, int64_t updates,
                                 const std::string& found, double learning_rate);

}  // namespace adtrain
