#include "model/spaces/SpaceFit.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/spaces/SymbolicCells.h"

namespace adtrain {
namespace {

bool is_box(const Space& space) {
  return space.kind == Space::Kind::kBox;
}

void check_packing(const TaskSpaces& spaces, Findings& findings) {
  if (spaces.packed_digits.empty()) return;
  const std::string digits = fmt::format("{}", fmt::join(spaces.packed_digits, ", "));
  if (is_box(spaces.observation)) {
    findings.add("observation_packing",
                 fmt::format("found {} with observations of {}; only whole numbers hold digits: expected "
                             "observation_space to be a Discrete or MultiDiscrete, or no packing",
                             digits, spaces.observation.text()));
    return;
  }
  const int64_t most = std::accumulate(spaces.packed_digits.begin(), spaces.packed_digits.end(), int64_t{1},
                                       std::multiplies<>());
  const int64_t found = *std::ranges::max_element(spaces.observation.values);
  if (found > most) {
    findings.add("observation_packing",
                 fmt::format("found {}, which are {} values at most, with observations of {}; expected "
                             "digits for all {} values",
                             digits, most, spaces.observation.text(), found));
  }
}

void check_encoder(const ModelOptions& options, const TaskSpaces& spaces, Findings& findings) {
  const Space& space = spaces.observation;
  const ObservationEncoderKind kind = options.space_pieces.observation_encoder;
  const bool of_numbers = kind == ObservationEncoderKind::kLinear || kind == ObservationEncoderKind::kMlp;
  const auto refuse = [&](const std::string& because) {
    findings.add("observation_encoder",
                 fmt::format("found {} with observations of {}; {}", name_of(kind), space.text(), because));
  };
  if (is_box(space)) {
    if (kind == ObservationEncoderKind::kAuto && space.shape.size() > 1) {
      refuse("there is no encoder of images: linear or mlp would take all of their numbers as one vector");
    } else if (kind != ObservationEncoderKind::kAuto && !of_numbers) {
      refuse("expected auto, linear or mlp, which read real numbers");
    }
  } else if (of_numbers) {
    refuse("expected auto, embedding or convolution, which read whole numbers");
  } else if (kind == ObservationEncoderKind::kConvolution && !SymbolicCells::of(spaces).fit_convolutions()) {
    refuse("expected embedding or auto: three convolutions of 2 × 2 need a grid of 4 × 4 cells or more");
  }
}

void check_head(const ModelOptions& options, const Space& action, Findings& findings) {
  const ActionHeadKind kind = options.space_pieces.action_head;
  if (kind == ActionHeadKind::kAuto || is_box(action) == (kind != ActionHeadKind::kCrossEntropy)) return;
  findings.add("action_head",
               fmt::format("found {} with actions of {}; expected auto or {}", name_of(kind), action.text(),
                           is_box(action) ? "mse or gaussian" : "cross_entropy"));
}

}  // namespace

SpacePieces pieces_for(const ModelOptions& options, const TaskSpaces& spaces) {
  const TransformerBlock block = options.block();
  SpacePieces pieces = options.space_pieces;
  if (pieces.observation_encoder == ObservationEncoderKind::kAuto) {
    using Kind = ObservationEncoderKind;
    if (is_box(spaces.observation)) {
      pieces.observation_encoder = block == TransformerBlock::kVintix ? Kind::kMlp : Kind::kLinear;
    } else {
      const bool convolved =
          block == TransformerBlock::kXland && SymbolicCells::of(spaces).fit_convolutions();
      pieces.observation_encoder = convolved ? Kind::kConvolution : Kind::kEmbedding;
    }
  }
  if (pieces.action_head == ActionHeadKind::kAuto) {
    pieces.action_head = is_box(spaces.action) ? ActionHeadKind::kMse : ActionHeadKind::kCrossEntropy;
  }
  return pieces;
}

void check_spaces(const ModelOptions& options, const std::vector<TaskSpaces>& groups, Findings& findings) {
  for (const TaskSpaces& spaces : groups) {
    Findings of_group;
    check_packing(spaces, of_group);
    check_encoder(options, spaces, of_group);
    check_head(options, spaces.action, of_group);
    for (const auto& [key, message] : of_group.all())
      findings.add(key, spaces.group.empty() ? message : fmt::format("{}: {}", spaces.group, message));
  }
}

}  // namespace adtrain
