#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "kernels/attention/decoding/KeyValueRing.h"
#include "kernels/block/stack/StackDecoder.h"
#include "kernels/plan/KernelPlan.h"
#include "kernels/rope/Rotary.h"
#include "model/Attention.h"

namespace adtrain {

/// Where the tokens of rows that grow step by step are kept: the last `window` of them, in a ring.
///
/// They are counted on the host and on the device. A replay of captured work counts on the device alone: what
/// is captured must not depend on the host's numbers. Copies share the device's counts.
class RollingPlaces {
 public:
  explicit RollingPlaces(int64_t window) : window_(window) {}

  /// Makes room for a step's `tokens`, which take the places of the oldest ones where all are taken. The last
  /// `passing` of them are read by no later step: the next one's tokens take their positions. Both are the
  /// same at every step after the first, and `device` is always that of the tokens.
  void add(int64_t tokens, int64_t passing, at::Device device);
  int64_t window() const { return window_; }
  /// How many tokens the newest step has. The functions below are of token `token` = 0 … of it.
  int64_t tokens() const { return newest_; }
  /// Counted from the rows' first token.
  int64_t position(int64_t token) const { return counted_ - newest_ + token; }
  int64_t place(int64_t token) const { return position(token) % window_; }
  /// Places that are taken when the token is there.
  int64_t taken(int64_t token) const { return position(token) < window_ ? position(token) + 1 : window_; }
  /// How many tokens there are then: int64 (tokens()) on the device. add() changes it in place.
  const at::Tensor& counts() const { return counts_; }
  /// How many tokens came after the one in each place that is taken then: int64 (taken) on this device.
  at::Tensor ages(int64_t token, at::Device device) const;

 private:
  int64_t window_;
  int64_t counted_ = 0;  ///< tokens, the newest step's among them
  int64_t newest_ = 0, passing_ = 0;
  at::Tensor counts_;  ///< undefined before the first step
};

/// What attention must know of the newest step's tokens.
struct NewestTokens {
  const RollingPlaces& places;
  Rotary rotary;  ///< of the tokens; undefined without rotary positions
  std::vector<at::Tensor>
      penalties;  ///< added to scores, (1, heads, 1, taken), of each token; empty for none
  /// Where it has a value, our own kernel runs attention, with this penalty.
  std::optional<kernels::DistancePenalty> by_kernel;
  /// Whether, in blocks of chosen pieces, our own kernels run what stands between products.
  bool around_products = false;

  /// Without penalty and rotary positions. Follows `plan`.
  static NewestTokens plain(const RollingPlaces& places, const kernels::KernelPlan& plan);
};

/// What the quantised weights after each of a block's norms make of the norm: see ProductOptions. Undefined
/// where they are not used.
struct NormProducts {
  at::Tensor attention, mlp;
};

/// The keys and values of one block, of the tokens that RollingPlaces keeps. They stay as they were computed:
/// deeper blocks' keys have seen tokens that the window has lost. For one thread.
class RollingKeys {
 public:
  /// Attention of each of the newest tokens over all that are kept when it is there, itself among them.
  /// query, key, value: (B, heads, tokens, head size). Returns (B, tokens, heads · head size). `norms`: of
  /// queries and keys, if any, where our own kernel runs attention.
  at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const NewestTokens& newest, const kernels::HeadNorms& norms = {});
  /// The same as a function. Borrows both.
  Attend attending(const NewestTokens& newest) {
    return [this, &newest](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
      return attend(query, key, value, newest);
    };
  }
  /// Undefined before the first step.
  const kernels::KeyValueRing& ring() const { return ring_; }
  /// What `compute` returned at the first step, which is not captured in a CUDA graph.
  template <class Compute>
  const NormProducts& norm_products(Compute&& compute) {
    if (!norm_products_) norm_products_ = compute();
    return *norm_products_;
  }

 private:
  /// Of one token: (B, heads, 1, head size), as above.
  at::Tensor attend_one(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const NewestTokens& newest, const kernels::HeadNorms& norms, int64_t token);

  kernels::KeyValueRing ring_;  ///< undefined before the first step
  std::optional<NormProducts> norm_products_;
};

/// One kernel for a step through blocks `first` … `end` − 1, where there is one.
struct StackedStep {
  int64_t first, end;
  std::optional<kernels::StackDecoder> decoder;

  bool takes(const at::Tensor& x, int64_t first_block, int64_t end_block) const {
    return decoder && first == first_block && end == end_block && decoder->takes(x);
  }
};

/// What a stack of blocks keeps of rows that grow step by step.
struct RollingBlocks {
  RollingPlaces places;
  std::vector<RollingKeys> blocks;
  std::optional<StackedStep> stacked = std::nullopt;  ///< made behind the first step

  /// What a step can do before its tokens are there.
  void prepare() const {
    if (stacked && stacked->decoder) stacked->decoder->prepare();
  }

  /// Of empty rows, which will keep the last `window` tokens.
  static RollingBlocks of(int64_t window, size_t blocks) {
    return {RollingPlaces(window), std::vector<RollingKeys>(blocks)};
  }
};

/// The newest tokens x (B, tokens, width) through blocks `first` … `end` − 1, which have newest(x, keys,
/// tokens).
template <class Block>
at::Tensor newest_through(const std::vector<Block>& blocks, at::Tensor x, int64_t first, int64_t end,
                          RollingBlocks& kept, const NewestTokens& newest) {
  for (int64_t i = first; i < end; ++i) {
    const auto place = static_cast<size_t>(i);
    x = blocks[place].newest(x, kept.blocks[place], newest);
  }
  return x;
}

}  // namespace adtrain
