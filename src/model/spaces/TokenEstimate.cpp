#include "model/spaces/TokenEstimate.h"

#include "model/spaces/ObservationEncoder.h"
#include "model/spaces/SpaceFit.h"
#include "model/spaces/StepTokens.h"
#include "model/spaces/SymbolicCells.h"

namespace adtrain {
namespace {

/// A vector's numbers and, of an MLP, what each of its linear layers, activations and norms gives.
int64_t vector_elements(const Space& space, bool mlp, int64_t features) {
  constexpr int64_t kLayers = 6;
  return space.size() + (mlp ? kLayers : 1) * features;
}

/// The embeddings of all digits and what convolutions give of them.
int64_t symbol_elements(const TaskSpaces& spaces, bool convolved, int64_t features) {
  const SymbolicCells cells = SymbolicCells::of(spaces);
  const int64_t embedded = cells.count() * cells.digits() * ObservationEncoder::kDigitFeatures;
  int64_t of_convolutions = 0;
  for (int64_t layer = 1; convolved && layer <= ObservationEncoder::kConvolutions; ++layer) {
    of_convolutions += (cells.shape[0] - layer) * (cells.shape[1] - layer) * ObservationEncoder::kChannels;
  }
  return embedded + of_convolutions + features;
}

/// The features, and what the linear layer takes where it is not fused.
int64_t fused_elements(const TaskSpaces& spaces, int64_t features) {
  const kernels::SymbolGrid grid = ObservationEncoder::grid_of(spaces, features).value();
  const int64_t of_kernels = grid.shape(1, kernels::ShortType::kBFloat16).features();
  return grid.has_fused_linear() ? features : of_kernels + features;
}

}  // namespace

int64_t token_elements(const ModelOptions& options, const TaskSpaces& spaces, bool fused_encoder) {
  const bool vintix = options.block() == TransformerBlock::kVintix;
  const int64_t features = StepTokens::features_of(options);
  const ObservationEncoderKind kind = pieces_for(options, spaces).observation_encoder;
  const int64_t observation =
      spaces.observation.kind == Space::Kind::kBox
          ? vector_elements(spaces.observation, kind == ObservationEncoderKind::kMlp, features)
      : kind == ObservationEncoderKind::kConvolution && fused_encoder
          ? fused_elements(spaces, features)
          : symbol_elements(spaces, kind == ObservationEncoderKind::kConvolution, features);
  constexpr int64_t kEmbeddedAndActivated = 3;
  const int64_t action = spaces.action.kind == Space::Kind::kBox
                             ? vector_elements(spaces.action, vintix, features)
                             : (vintix ? kEmbeddedAndActivated : 1) * features;
  return observation + action + 2 * features + 1;
}

int64_t head_elements(const ModelOptions& options) {
  constexpr int64_t kHiddenAndActivated = 6;
  return options.block() == TransformerBlock::kVintix ? kHiddenAndActivated * options.tf_n_embd : 0;
}

int64_t step_bytes(const TaskSpaces& spaces) {
  constexpr int64_t kRewardAndBegin = 5;
  const auto bytes = [](const Space& space) {
    return space.size() * static_cast<int64_t>(size_of(space.type));
  };
  return bytes(spaces.observation) + bytes(spaces.action) + kRewardAndBegin;
}

}  // namespace adtrain
