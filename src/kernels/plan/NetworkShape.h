#pragma once

#include <cstdint>
#include <vector>

#include "kernels/encoder/SymbolGrid.h"

namespace adtrain::kernels {

/// The properties of a network on which the choice of kernels depends.
struct NetworkShape {
  /// kComposed: of chosen pieces. kOther: the operators of a plug-in's network.
  enum class Block { kPreNorm, kPostNorm, kGpt2, kComposed, kOther };

  Block block = Block::kPreNorm;
  int64_t width = 0;
  int64_t heads = 1;
  int64_t inner_width = 0;    ///< of the MLP's hidden layer
  int64_t tokens = 0;         ///< of the longest context; kernels that support it support shorter ones too
  int64_t actions = 0;        ///< outputs of the head, of a group at most; 0 where they are no single choice
  int64_t cells = 0;          ///< states of a grid family's tasks
  bool padded = false;        ///< sequences may begin with padding, as those of compressed context do
  bool packed = false;        ///< rows hold several histories, none of which reads another
  bool alibi = false;         ///< each position between two tokens takes something off their score
  bool normed_heads = false;  ///< queries and keys are normed, and not rotated after that
  bool two_streams = false;   ///< the loss is at all positions: queries form a second stream
  /// Of blocks of chosen pieces: GELU or else SwiGLU in the MLP, and which products have biases.
  bool gelu = false, attention_biases = true, mlp_biases = false;
  bool drops_hidden = false;           ///< training drops elements of the MLP's hidden layer
  bool drops_attention = false;        ///< training drops weights of attention
  std::vector<SymbolGrid> grids = {};  ///< that convolutions encode, of each group that has one
  bool dynamics = false;               ///< a head predicts rewards and next states, too
  bool quantised = false;              ///< linear layers have quantised weights; there are no gradients then

  constexpr int64_t head_size() const { return width / heads; }
  /// Whether it is one of those that have kernels of their own for everything.
  constexpr bool is_ad() const { return block == Block::kPreNorm || block == Block::kPostNorm; }
  constexpr bool is_gpt2() const { return block == Block::kGpt2; }
};

}  // namespace adtrain::kernels
