#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/QuantisedLinear.h"

namespace adtrain {

/// "fp32", "fp16" or "bf16": the type in which a network computes, as people call it.
const char* precision_name(at::ScalarType type);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A model's parameters: ONE flat fp32 tensor, so that clipping, the optimizer and broadcasts work on that
/// tensor without copies. The forward pass reads autograd leaves: views of the flat tensor or, in mixed
/// precision, of its low-precision copy in a 16-bit type. Whoever changes the flat tensor must also write the
/// copy, or call refresh(). Only networks that do not train may have a flat tensor of another type: see
/// round() and quantise().
///
/// The order is that of first use in the forward pass (gradients become ready from the back), except that
/// parameters that a variant never uses come first. Frozen ones lie in front of all others in the flat
/// tensor, so that what trains is one stretch of it, with the layout of a FlatLayout of its own. Not
/// thread-safe.
class ParameterBuffer {
 public:
  /// Packs fp32 leaves into the flat tensor. The handles stay valid, here and wherever they were copied to:
  /// each becomes a view of the flat tensor with its name, shape and values unchanged. `linears`: of those
  /// that are weights of linear layers.
  explicit ParameterBuffer(std::vector<NamedTensor> parameters, QuantisedLinears linears = {});

  /// (n), gaps included: the storage; needs no gradient itself. Replaced by `to`.
  const at::Tensor& flat() const { return flat_; }
  /// (n) in compute_type(): `flat`'s 16-bit copy; undefined where the leaves are views of
  /// `flat` itself. Replaced by `to`.
  at::Tensor low_precision() const { return compute_type() == at::kFloat ? at::Tensor() : low_precision_; }
  /// fp32 views of `flat` in the parameters' order, for checkpoints. None of those that are quantised.
  std::vector<NamedTensor> named() const { return views_of(flat_); }
  /// The same views of another tensor with `flat`'s layout.
  std::vector<NamedTensor> views_of(const at::Tensor& flat) const;
  /// The leaves, in the same order.
  std::vector<at::Tensor> leaves() const;
  /// The same with their names.
  const std::vector<NamedTensor>& named_leaves() const { return leaves_; }
  /// Parameters of the model.
  int64_t count() const;

  /// From now on the parameters of these names do not train: their leaves require no gradients. All others do
  /// require some. Replaces the storage; gradients are dropped, the handles stay valid.
  void freeze(const std::set<std::string>& names);
  /// The part that trains of a tensor with `flat`'s layout, which it shares the memory of: of `flat`, or of
  /// low_precision(), which may be undefined. Without frozen parameters the tensor itself.
  at::Tensor trained_of(const at::Tensor& flat) const;
  /// The leaves that train, in order, as a gradient reducer takes them: their FlatLayout is that of
  /// trained_of().
  std::vector<at::Tensor> trained_leaves() const;
  /// fp32 views by parameter of a tensor with the layout of trained_of(): a gradient, or an optimizer's
  /// moments.
  std::vector<NamedTensor> trained_views_of(const at::Tensor& trained) const;
  int64_t trained_count() const;
  /// In the parameters' order.
  std::vector<std::string> frozen_names() const;
  /// Of the flat tensor, of its low-precision copy, and of quantised weights.
  int64_t bytes() const;
  /// The type in which the forward pass computes: that of the leaves.
  at::ScalarType compute_type() const { return low_precision_.scalar_type(); }

  /// Moves everything to a device and makes the leaves of `type` (kFloat, kHalf or kBFloat16). Gradients are
  /// dropped; the handles stay valid.
  void to(at::Device device, at::ScalarType type = at::kFloat);
  /// Gives each leaf, in the buffer's order, a tensor of `type` on a device of its own, for passes without
  /// gradients over several devices. `flat` stays where it is, and so do leaves of its device: as views of
  /// it, or of its low-precision copy. Neither load() nor refresh() reaches leaves that are elsewhere.
  void spread(const std::vector<at::Device>& devices, at::ScalarType type);
  /// Quantises the weights of linear layers of these names, as `how` says, and rounds all others to `type`,
  /// on a device. For passes without gradients, once and for all: fp32 values are gone. `flat` is of the
  /// other parameters alone, and of `type`; leaves of quantised weights have their shape, and NaN for values.
  /// Of the other functions none but `spread` may change anything from then on.
  void quantise(const std::set<std::string>& names, const WeightQuantisation& how, at::Device device,
                at::ScalarType type);
  /// The same with matrices on the CPU that were quantised before.
  void take_quantised(QuantisedMatrices matrices, const WeightQuantisation& how, at::Device device,
                      at::ScalarType type);
  /// Moves everything to a device and rounds it to `type` there. For passes without gradients, once and for
  /// all: fp32 values are gone, and `flat` is of `type`, as are the views that named() gives.
  void round(at::Device device, at::ScalarType type);
  bool is_quantised() const;
  /// Names of the weights of linear layers, in the parameters' order.
  std::vector<std::string> linear_weights() const;
  /// What is kept of each parameter, in their order: its leaf, or the tensors of its quantised matrix.
  std::vector<std::vector<at::Tensor>> kept() const;
  /// Null for a parameter that is not quantised.
  const QuantisedLinear* quantised(const std::string& name) const;
  /// Where the forward pass computes: the leaves' device. Of leaves on several, the first that is not the
  /// CPU.
  at::Device device() const { return device_; }
  /// Rounds `flat` into the low-precision copy; nothing to do where the leaves are views of `flat` itself.
  void refresh();

  /// Copies values in, from any device and floating-point type. Exactly the parameters' names must be given,
  /// each with its exact shape. Otherwise it throws CheckpointError that lists every tensor that is missing,
  /// unexpected or of another shape, and copies nothing.
  void load(std::span<const NamedTensor> tensors);

 private:
  /// Decides where each leaf lies.
  void lay_out();
  void rebind(const at::Tensor& flat, at::ScalarType type);

  std::vector<bool> frozen_;      ///< by leaf
  std::vector<int64_t> offsets_;  ///< by leaf, in `flat_`
  int64_t trained_begin_ = 0, total_ = 0;
  at::Tensor flat_;
  at::Tensor low_precision_;  ///< `flat_` itself where the leaves are fp32
  std::vector<NamedTensor> leaves_;
  QuantisedLinears linears_;
  at::Device device_ = at::kCPU;  ///< of the leaves
};

}  // namespace adtrain
