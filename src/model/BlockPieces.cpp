#include "model/BlockPieces.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

/// The key of a piece, its documentation, and its spellings; the first is auto.
template <class Enum>
struct PieceKey {
  const char* name;
  const char* sentence;
  std::vector<std::pair<std::string, Enum>> values;

  bool chosen(Enum value) const { return value != values.front().second; }
  const std::string& spelling(Enum value) const {
    size_t index = 0;
    while (values[index].second != value) ++index;
    return values[index].first;
  }
};

const PieceKey<NormKind> kNorm = {
    "tf_norm",
    "Norm before each sublayer: RMSNorm or LayerNorm. auto: transformer_block's.",
    {{"auto", NormKind::kAuto}, {"rms", NormKind::kRms}, {"layer", NormKind::kLayer}}};
const PieceKey<Choice> kFinalNorm = {
    "tf_final_norm",
    "Whether a norm of the same kind stands behind the last block. auto: transformer_block's.",
    {{"auto", Choice::kAuto}, {"on", Choice::kOn}, {"off", Choice::kOff}}};
const PieceKey<MlpKind> kMlp = {
    "tf_mlp",
    "The block's MLP: exact GELU, or SwiGLU, whose gate is a third matrix. auto: transformer_block's.",
    {{"auto", MlpKind::kAuto}, {"gelu", MlpKind::kGelu}, {"swiglu", MlpKind::kSwiglu}}};
const PieceKey<PositionKind> kPositions = {
    "tf_positions",
    "learned: a vector for each place in the window is added. rotary: queries and keys are rotated. alibi: "
    "2^(-8(h+1)/H) × distance is taken off the scores of head h = 0 … H-1. none: tokens know their order by "
    "causality alone. auto: transformer_block's.",
    {{"auto", PositionKind::kAuto},
     {"learned", PositionKind::kLearned},
     {"rotary", PositionKind::kRotary},
     {"alibi", PositionKind::kAlibi},
     {"none", PositionKind::kNone}}};
const PieceKey<Choice> kQkNorm = {"tf_qk_norm",
                                  "Whether each head's queries and keys are normalised, by a norm of "
                                  "tf_norm's kind. auto: transformer_block's.",
                                  {{"auto", Choice::kAuto}, {"on", Choice::kOn}, {"off", Choice::kOff}}};
const PieceKey<BiasPlaces> kBias = {"tf_bias",
                                    "Which linear layers of a block have biases: all, those of attention, or "
                                    "none. auto: transformer_block's.",
                                    {{"auto", BiasPlaces::kAuto},
                                     {"all", BiasPlaces::kAll},
                                     {"attention", BiasPlaces::kAttention},
                                     {"none", BiasPlaces::kNone}}};

/// Calls visit(key, that field of each of `pieces` …) for each piece.
template <class Visit, class... Pieces>
void for_each_piece(Visit visit, Pieces&... pieces) {
  visit(kNorm, pieces.norm...);
  visit(kFinalNorm, pieces.final_norm...);
  visit(kMlp, pieces.mlp...);
  visit(kPositions, pieces.positions...);
  visit(kQkNorm, pieces.qk_norm...);
  visit(kBias, pieces.bias...);
}

}  // namespace

void BlockPieces::declare(Section& section) {
  for_each_piece(
      [&](const auto& key, auto& piece) { section.key(key.name, piece, key.values, key.sentence); }, *this);
}

BlockPieces BlockPieces::or_else(const BlockPieces& preset) const {
  BlockPieces all = *this;
  for_each_piece(
      [](const auto& key, auto& piece, const auto& of_preset) {
        if (!key.chosen(piece)) piece = of_preset;
      },
      all, preset);
  return all;
}

std::vector<std::string> BlockPieces::chosen() const {
  std::vector<std::string> settings;
  for_each_piece(
      [&](const auto& key, const auto& piece) {
        if (key.chosen(piece)) settings.push_back(fmt::format("{} = {}", key.name, key.spelling(piece)));
      },
      *this);
  return settings;
}

void BlockPieces::check_against(const BlockPieces& fixed, const std::string& network,
                                Findings& findings) const {
  for_each_piece(
      [&](const auto& key, const auto& piece, const auto& only) {
        if (!key.chosen(piece) || piece == only) return;
        findings.add(key.name,
                     fmt::format("found {} with {}, whose pieces are fixed; expected {} or auto, or "
                                 "transformer_block pre_norm, xland or vintix, whose pieces can be chosen",
                                 key.spelling(piece), network, key.spelling(only)));
      },
      *this, fixed);
}

std::string BlockPieces::text() const {
  const std::string norms = norm == NormKind::kRms ? "RMSNorm" : "LayerNorm";
  std::vector<std::string> words = {norms +
                                    (final_norm == Choice::kOn ? " before and at the end" : " before")};
  if (qk_norm == Choice::kOn) words.emplace_back("QK norm");
  words.emplace_back(mlp == MlpKind::kGelu ? "GELU" : "SwiGLU");
  words.push_back(positions == PositionKind::kAlibi ? "ALiBi"
                                                    : kPositions.spelling(positions) + " positions");
  words.push_back("biases: " + kBias.spelling(bias));
  return join(words, ", ");
}

}  // namespace adtrain
