#include "model/SpacePieces.h"

#include <algorithm>
#include <utility>

namespace adtrain {
namespace {

const std::vector<std::pair<std::string, ObservationEncoderKind>> kEncoders = {
    {"auto", ObservationEncoderKind::kAuto},
    {"embedding", ObservationEncoderKind::kEmbedding},
    {"convolution", ObservationEncoderKind::kConvolution},
    {"linear", ObservationEncoderKind::kLinear},
    {"mlp", ObservationEncoderKind::kMlp}};

const std::vector<std::pair<std::string, ActionHeadKind>> kHeads = {
    {"auto", ActionHeadKind::kAuto},
    {"cross_entropy", ActionHeadKind::kCrossEntropy},
    {"mse", ActionHeadKind::kMse},
    {"gaussian", ActionHeadKind::kGaussian}};

}  // namespace

void SpacePieces::declare(Section& section) {
  section.key("observation_encoder", observation_encoder, kEncoders,
              "Tasks of your own: what makes features of an observation. embedding: of each whole number. "
              "convolution: of a grid of them, as the baseline of XLand-100B. linear, mlp: of real numbers. "
              "auto: by the space and transformer_block (docs/models.md).");
  section.key("action_head", action_head, kHeads,
              "Tasks of your own: how actions are predicted. cross_entropy: whole numbers, by the "
              "probability of each value. mse: real numbers, by their squared error. gaussian: real numbers, "
              "by a mean and a standard deviation of each. auto: cross_entropy or mse.");
}

std::vector<std::string> SpacePieces::chosen() const {
  std::vector<std::string> settings;
  if (observation_encoder != ObservationEncoderKind::kAuto)
    settings.push_back("observation_encoder = " + name_of(observation_encoder));
  if (action_head != ActionHeadKind::kAuto) settings.push_back("action_head = " + name_of(action_head));
  return settings;
}

std::string name_of(ObservationEncoderKind kind) {
  return std::ranges::find(kEncoders, kind, &std::pair<std::string, ObservationEncoderKind>::second)->first;
}

std::string name_of(ActionHeadKind kind) {
  return std::ranges::find(kHeads, kind, &std::pair<std::string, ActionHeadKind>::second)->first;
}

}  // namespace adtrain
