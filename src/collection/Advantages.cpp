#include "collection/Advantages.h"

namespace adtrain {

void estimate_advantages(std::span<const float> rewards, std::span<const float> values,
                         std::span<const uint8_t> dones, std::span<const float> last_values, float discount,
                         float lambda, std::span<float> advantages, std::span<float> targets) {
  const size_t streams = last_values.size();
  for (size_t begin = rewards.size(); begin > 0;) {
    const bool last = begin == rewards.size();
    begin -= streams;
    for (size_t stream = 0; stream < streams; ++stream) {
      const size_t now = begin + stream, next = now + streams;
      const float goes_on = dones[now] != 0 ? 0.0F : 1.0F;
      const float next_value = last ? last_values[stream] : values[next];
      const float next_advantage = last ? 0.0F : advantages[next];
      const float delta = rewards[now] + discount * next_value * goes_on - values[now];
      advantages[now] = delta + discount * lambda * goes_on * next_advantage;
      targets[now] = advantages[now] + values[now];
    }
  }
}

}  // namespace adtrain
