#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A model's parameters: leaves of autograd that are views of ONE flat fp32 tensor, so that communication,
/// clipping and the optimizer work on that tensor without copies.
///
/// The order is that of first use in the forward pass (gradients become ready from the back), except that
/// what a variant holds but never uses stands in front. Not thread-safe.
class ParameterBuffer {
 public:
  /// Packs fp32 leaves into the flat tensor. The handles stay valid, here and wherever they were copied to:
  /// each becomes a view of the flat tensor with its name, shape and values unchanged.
  explicit ParameterBuffer(std::vector<NamedTensor> parameters);

  /// (count): the storage; needs no gradient itself. Replaced by `to`.
  const at::Tensor& flat() const { return flat_; }
  /// The views, in the order in which they lie in `flat`.
  const std::vector<NamedTensor>& named() const { return named_; }
  /// The views alone, in the same order, as a gradient reducer wants them.
  std::vector<at::Tensor> tensors() const;
  int64_t count() const { return flat_.numel(); }

  /// Moves flat tensor and views. Gradients are dropped; the handles stay valid.
  void to(at::Device device);

  /// Copies values in, from any device and floating-point type. Every name must be there with its exact shape
  /// and nothing else may be; otherwise throws CheckpointError that lists all that is missing, unexpected or
  /// of another shape, and copies nothing.
  void load(std::span<const NamedTensor> tensors);

 private:
  void rebind(const at::Tensor& flat);

  at::Tensor flat_;
  std::vector<NamedTensor> named_;
};

}  // namespace adtrain
