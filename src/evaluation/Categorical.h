#pragma once

#include <cstdint>
#include <span>

namespace adtrain {

/// The first of the largest logits. There must be one at least.
int32_t most_probable(std::span<const float> logits);
/// Inverts the distribution function of the softmax at `uniform`, a number in [0, 1). The logits are divided
/// by `temperature`, which is above 0.
int32_t drawn_at(std::span<const float> logits, double uniform, double temperature = 1);

}  // namespace adtrain
