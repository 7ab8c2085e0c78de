#pragma once

#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// Norm before each sublayer. kAuto, here and below: the preset's.
enum class NormKind { kAuto, kRms, kLayer };

enum class MlpKind { kAuto, kGelu, kSwiglu };

/// How tokens know their order.
enum class PositionKind {
  kAuto,
  kLearned,  ///< a vector for each place in the window, added to the token
  kRotary,   ///< queries and keys are rotated (Su et al., 2021, arXiv:2104.09864)
  kAlibi,    ///< a penalty on scores that is linear in the distance (Press et al., 2021, arXiv:2108.12409)
  kNone,     ///< by causality alone
};

/// Which linear layers of a block have biases.
enum class BiasPlaces { kAuto, kAll, kAttention, kNone };

enum class Choice { kAuto, kOn, kOff };

/// The parts of which a transformer block is made whose norms stand before its sublayers, and the norm behind
/// the last block. Every field is kAuto until it is chosen.
struct BlockPieces {
  NormKind norm = NormKind::kAuto;
  Choice final_norm = Choice::kAuto;
  MlpKind mlp = MlpKind::kAuto;
  PositionKind positions = PositionKind::kAuto;
  Choice qk_norm = Choice::kAuto;
  BiasPlaces bias = BiasPlaces::kAuto;

  bool operator==(const BlockPieces&) const = default;

  void declare(Section& section);
  /// These pieces where they are chosen, else those of `preset`.
  BlockPieces or_else(const BlockPieces& preset) const;
  /// "tf_norm = rms" of each chosen piece.
  std::vector<std::string> chosen() const;
  /// A finding for each chosen piece that is not the one of `fixed`, the pieces of a network that has no
  /// other. `network`: its setting, as "transformer_block: post_norm".
  void check_against(const BlockPieces& fixed, const std::string& network, Findings& findings) const;
  /// "LayerNorm before, GELU, ALiBi, biases: all": for people, where nothing is kAuto.
  std::string text() const;
};

}  // namespace adtrain
