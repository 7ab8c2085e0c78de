#include "model/NetworkPlan.h"

#include <algorithm>
#include <vector>

#include "model/spaces/ObservationEncoder.h"
#include "model/spaces/SpaceFit.h"
#include "model/spaces/StepTokens.h"

namespace adtrain {
namespace {

kernels::NetworkShape::Block block_of(const ModelOptions& options) {
  using Block = kernels::NetworkShape::Block;
  if (options.is_plugin()) return Block::kOther;
  if (options.compressed()) return Block::kPostNorm;
  if (options.composed()) return Block::kComposed;
  switch (options.block()) {
    case TransformerBlock::kGpt2:
      return Block::kGpt2;
    case TransformerBlock::kPostNorm:
      return Block::kPostNorm;
    default:
      return Block::kPreNorm;
  }
}

std::vector<kernels::SymbolGrid> grids_of(const ModelOptions& options, const ModelShape& shape) {
  std::vector<kernels::SymbolGrid> grids;
  for (const TaskSpaces& spaces : shape.spaces) {
    if (pieces_for(options, spaces).observation_encoder != ObservationEncoderKind::kConvolution) continue;
    const auto grid = ObservationEncoder::grid_of(spaces, StepTokens::features_of(options));
    if (grid) grids.push_back(*grid);
  }
  return grids;
}

/// The actions of the groups' heads at most, where an action is one choice; else 0.
int64_t actions_of(const ModelOptions& options, const ModelShape& shape) {
  if (shape.spaces.empty()) return shape.num_actions;
  int64_t most = 0;
  for (const TaskSpaces& spaces : shape.spaces) {
    const bool one_choice = pieces_for(options, spaces).action_head == ActionHeadKind::kCrossEntropy &&
                            spaces.action.size() == 1 && spaces.action.values.front() > 1;
    if (!one_choice) return 0;
    most = std::max(most, spaces.action.values.front());
  }
  return most;
}

}  // namespace

kernels::KernelPlan plan_of(const ModelOptions& options, const ModelShape& shape, LossPositions positions,
                            const kernels::DeviceTraits& device, at::ScalarType type, bool quantised) {
  using Use = kernels::KernelPlan::Use;
  const BlockPieces pieces = options.composed() ? options.block_pieces() : BlockPieces();
  const kernels::NetworkShape network = {
      .block = block_of(options),
      .width = options.tf_n_embd,
      .heads = options.tf_n_head,
      .inner_width = options.inner_width(),
      .tokens = options.longest_context(),
      .actions = actions_of(options, shape),
      .cells = shape.states(),
      .padded = options.compressed(),
      .packed = shape.packed && positions == LossPositions::kAll,
      .alibi = pieces.positions == PositionKind::kAlibi,
      .normed_heads = pieces.qk_norm == Choice::kOn && pieces.positions != PositionKind::kRotary,
      .two_streams = positions == LossPositions::kAll && options.needs_query_stream(),
      .gelu = pieces.mlp == MlpKind::kGelu,
      .attention_biases = pieces.bias != BiasPlaces::kNone,
      .mlp_biases = pieces.bias == BiasPlaces::kAll,
      .drops_hidden = block_of(options) == kernels::NetworkShape::Block::kPostNorm && options.tf_dropout > 0,
      .drops_attention = options.tf_attn_dropout > 0,
      .grids = grids_of(options, shape),
      .dynamics = options.dynamics,
      .quantised = quantised};
  return {network, device, type,
          options.fused_kernels == FusedKernels::kOff ? Use::kNever : Use::kWhereTheyFit};
}

}  // namespace adtrain
