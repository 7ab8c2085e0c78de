#pragma once

#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// What makes features of an observation. kAuto: by its space and transformer_block, see spaces/SpaceFit.h.
enum class ObservationEncoderKind {
  kAuto,
  kEmbedding,    ///< whole numbers: an embedding of each
  kConvolution,  ///< a grid of them: embeddings and convolutions, as the baseline of XLand-100B
  kLinear,       ///< real numbers: a linear layer
  kMlp,          ///< real numbers: two linear layers with norms, as Vintix
};

/// What an action is predicted by, and the loss of a prediction. kAuto: by its space.
enum class ActionHeadKind {
  kAuto,
  kCrossEntropy,  ///< whole numbers: a probability of each value
  kMse,           ///< real numbers, by their squared error
  kGaussian,      ///< real numbers: a mean and a standard deviation of each, by their likelihood
};

/// What reads observations and predicts actions, of networks over tasks of any space.
struct SpacePieces {
  ObservationEncoderKind observation_encoder = ObservationEncoderKind::kAuto;
  ActionHeadKind action_head = ActionHeadKind::kAuto;

  bool operator==(const SpacePieces&) const = default;

  void declare(Section& section);
  /// "action_head = mse" of each that is chosen.
  std::vector<std::string> chosen() const;
};

/// As in a configuration.
std::string name_of(ObservationEncoderKind kind);
std::string name_of(ActionHeadKind kind);

}  // namespace adtrain
