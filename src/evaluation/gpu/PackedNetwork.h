#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "evaluation/gpu/RolloutNetwork.h"
#include "model/AlgorithmDistillation.h"

namespace adtrain {

/// A model's weights on its GPU in the order in which the rollout kernel reads them. They are copies: later
/// updates of the model do not change them.
class PackedNetwork {
 public:
  /// Why the rollout kernel cannot run such a model; nothing where it can.
  static std::optional<std::string> objection(const ModelOptions& options, const ModelShape& shape);

  /// Throws std::invalid_argument where there is an objection.
  explicit PackedNetwork(AlgorithmDistillation& model);

  at::Device device() const { return device_; }
  /// Valid as long as this object lives.
  const gpu::RolloutNetwork& view() const { return view_; }

 private:
  void pack_post_norm(AlgorithmDistillation& model);
  void pack_pre_norm(AlgorithmDistillation& model);
  /// Copies fp32 numbers to the GPU, where they remain while this object exists.
  const float* keep(const at::Tensor& tensor);
  /// `weight`: (outputs, inputs) on the CPU; `bias`: (outputs), or undefined for zeros.
  gpu::PackedLinear pack(const at::Tensor& weight, const at::Tensor& bias);

  at::Device device_;
  gpu::RolloutNetwork view_ = {};
  std::vector<at::Tensor> storage_;
};

}  // namespace adtrain
