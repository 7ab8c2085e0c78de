#pragma once

#include <cstdint>
#include <span>

namespace adtrain {

/// Generalised advantage estimation (Schulman et al. 2016) over a rollout of `streams` streams. Arrays are
/// (steps, streams), `last_values` (streams) are the values of the states after the rollout. An episode's end
/// is terminal: the value after it is 0.
///
/// Sets advantages[t] = Σ_k (discount · lambda)^k δ[t + k], δ[t] = reward[t] + discount · value[t + 1] −
/// value[t], summed up to the episode's or the rollout's end, and targets[t] = advantages[t] + values[t].
void estimate_advantages(std::span<const float> rewards, std::span<const float> values,
                         std::span<const uint8_t> dones, std::span<const float> last_values, float discount,
                         float lambda, std::span<float> advantages, std::span<float> targets);

}  // namespace adtrain
