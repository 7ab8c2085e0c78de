#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace adtrain {

/// The layout of tensors in one flat buffer, in order. Each begins at a multiple of 64 elements: kernels use
/// vectorised loads only at aligned addresses (a model whose parameters had no gaps between them trained at
/// half the speed). Gaps hold zeros, which change no sum, no norm and no AdamW step. Immutable.
class FlatLayout {
 public:
  explicit FlatLayout(const std::vector<int64_t>& sizes) {
    for (const int64_t size : sizes) {
      offsets_.push_back(total_);
      total_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  /// Of tensors, in their order.
  template <class Tensors>
  static FlatLayout of(const Tensors& tensors) {
    std::vector<int64_t> sizes;
    for (const auto& tensor : tensors) sizes.push_back(tensor.numel());
    return FlatLayout(sizes);
  }

  size_t tensors() const { return offsets_.size(); }
  int64_t offset(size_t tensor) const { return offsets_[tensor]; }
  /// Elements of the buffer, gaps included.
  int64_t total() const { return total_; }

 private:
  static constexpr int64_t kAlignment = 64;
  std::vector<int64_t> offsets_;
  int64_t total_ = 0;
};

}  // namespace adtrain
