#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/attention/decoding/KeyValueRing.h"
#include "kernels/rope/Rotary.h"

namespace adtrain {

/// Where the tokens of rows that grow by one token at a time are kept: the last `window` of them, in a ring.
///
/// They are counted on the host and on the device. A replay of captured work counts on the device alone: what
/// is captured must not depend on the host's numbers. Copies share the device's count.
class RollingPlaces {
 public:
  explicit RollingPlaces(int64_t window) : window_(window) {}

  /// Makes room for a token, which takes the place of the oldest one where all are taken. `device`: of the
  /// tokens, always the same.
  void add(at::Device device);
  int64_t window() const { return window_; }
  /// Of the newest token, counted from the rows' first one.
  int64_t position() const { return tokens_ - 1; }
  int64_t newest() const { return position() % window_; }
  int64_t taken() const { return tokens_ < window_ ? tokens_ : window_; }
  /// How many tokens there have been: int64 (1) on the device. add() changes it in place.
  const at::Tensor& count() const { return count_; }
  /// How many tokens came after the one in each taken place: int64 (taken) on this device.
  at::Tensor ages(at::Device device) const;

 private:
  int64_t window_;
  int64_t tokens_ = 0;
  at::Tensor count_;  ///< undefined before the first token
};

/// What attention must know of the newest token of such rows.
struct NewestToken {
  const RollingPlaces& places;
  Rotary rotary;       ///< of the token; undefined without rotary positions
  at::Tensor penalty;  ///< added to scores, (1, heads, 1, taken), by plain operators; undefined for none
  /// Where it has a value, our own kernel runs attention, with this penalty.
  std::optional<kernels::DistancePenalty> by_kernel;
};

/// The keys and values of one block, of the tokens that RollingPlaces keeps. They stay as they were computed:
/// deeper blocks' keys have seen tokens that the window has lost. For one thread.
class RollingKeys {
 public:
  /// Attention of the newest token over all that are kept, itself among them. query, key, value: (B, heads,
  /// 1, head size) of that token. Returns (B, 1, heads · head size).
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const NewestToken& token);

 private:
  kernels::KeyValueRing ring_;  ///< undefined before the first token
};

/// What a stack of blocks keeps of rows that grow by one token at a time.
struct RollingBlocks {
  RollingPlaces places;
  std::vector<RollingKeys> blocks;
};

}  // namespace adtrain
