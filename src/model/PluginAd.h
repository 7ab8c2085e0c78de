#pragma once

#include <cstdint>
#include <memory>

#include "model/AlgorithmDistillation.h"

namespace adtrain {

class Network;

/// A plug-in's network over plain rows: its parameters are taken into the flat buffer, and what it returns is
/// checked.
class PluginAd : public AlgorithmDistillation {
 public:
  /// Throws ConfigError where the plug-in makes no network, or one whose parameters cannot be trained.
  PluginAd(const ModelOptions& options, const ModelShape& shape, uint64_t seed);

  /// Throws ConfigError where the logits are of another shape than adtrain/network.h says.
  Predictions forward(const Batch& batch, LossPositions positions, bool training) override;

 private:
  void move_buffers() const;
  void check(const at::Tensor& logits, at::IntArrayRef expected) const;

  std::shared_ptr<Network> network_;
};

}  // namespace adtrain
