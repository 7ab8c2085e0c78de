#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"
#include "environments/TaskSpaces.h"
#include "model/BlockPieces.h"
#include "model/SpacePieces.h"

namespace adtrain {

/// The tokens of the sequence.
enum class ModelKind {
  kAd,            ///< a transition is one token
  kCompressedAd,  ///< the same, in regions between <compress> and </compress>
  kGpt2,          ///< state, action and reward are tokens of their own
  kPlugin,        ///< the first network of PluginNetworks; the others' are the numbers behind it
};

/// All that `model` may be, the networks of plug-ins that are loaded included.
std::vector<std::string> model_names();

enum class TransformerBlock {
  kAuto,      ///< GPT-2's for split tokens, post-norm for compressed context, else pre-norm
  kPreNorm,   ///< RMSNorm, SwiGLU, rotary positions
  kPostNorm,  ///< torch.nn.TransformerEncoderLayer: LayerNorm after the residual, GELU, learned positions
  kGpt2,      ///< LayerNorm before each sublayer, GELU, learned positions
  kXland,     ///< LayerNorm before each sublayer, GELU, ALiBi: the baseline of XLand-100B (arXiv:2406.08973)
  kVintix,    ///< the same, and LayerNorm of queries, of keys and at the end: Vintix (arXiv:2501.19400)
};

/// What a token of a window holds.
enum class TokenLayout {
  kAuto,  ///< split for model GPT2, previous for blocks xland and vintix and for any space, else transition
  kTransition,  ///< a transition; the query is its state alone
  kPrevious,    ///< the previous action and reward, and the present state: every token is a query
  kSplit,       ///< a state, an action or a reward
};

/// What stands for the previous action and reward at the first step of a window; of tasks of any space, at
/// that of an episode.
enum class FirstStep {
  kAuto,     ///< learned for tasks of any space and block vintix, else zeros
  kZeros,    ///< action 0 and reward 0 at the first step of a window; of any space, nothing in their place
  kLearned,  ///< parameters
};

/// Whether blocks run by our own GPU kernels.
enum class FusedKernels {
  kAuto,  ///< where the block has some
  kOn,    ///< required: otherwise training does not start
  kOff,
};

/// What the backward pass computes again, as the forward pass does not keep it.
enum class Recompute {
  kNone,
  kMlp,    ///< of each block's MLP the first product and its activation
  kBlock,  ///< whole blocks, from their inputs
};

/// What a model needs to know of the environment.
struct ModelShape {
  int64_t grid_size = 9;
  int64_t num_actions = 5;
  /// Of tasks that are none of the grid families', of each group of tasks with equal spaces; grid_size and
  /// num_actions then have no meaning. Else none.
  std::vector<TaskSpaces> spaces = {};
  bool packed = false;  ///< rows of training with the loss at all positions are packed rows: see Batch

  int64_t states() const { return grid_size * grid_size; }
  /// Features of a transition token: state (2), one-hot action, reward, next state (2).
  int64_t transition_features() const { return num_actions + 5; }
};

/// The network and its loss.
struct ModelOptions {
  ModelKind model = ModelKind::kAd;
  TransformerBlock transformer_block = TransformerBlock::kAuto;
  BlockPieces pieces;
  TokenLayout token_layout = TokenLayout::kAuto;
  FirstStep first_step = FirstStep::kAuto;
  SpacePieces space_pieces;
  int64_t tf_n_embd = 32;
  int64_t tf_n_layer = 4;
  int64_t tf_n_head = 4;
  std::optional<int64_t> tf_n_inner;
  double tf_dropout = 0.1;
  double tf_attn_dropout = 0.1;
  int64_t n_transit = 80;

  bool use_compressed_context = false;
  int64_t compress_interval = 80;
  double token_type_weight = 0.1;

  FusedKernels fused_kernels = FusedKernels::kAuto;
  Recompute recompute = Recompute::kNone;

  double label_smoothing = 0.0;
  bool dynamics = false;
  double dynamics_strength = 1.0;

  void declare(Section& section);
  void check(Findings& findings) const;
  /// The same for tasks of any space, instead. What depends on the spaces themselves is spaces/SpaceFit.h's.
  void check_own_tasks(Findings& findings) const;
  /// These options with what tasks of any space mean by a token layout and a first step that are left open.
  ModelOptions of_own_tasks() const;
  /// Of a network composed of pieces, names those and the token layout that were left open; of another, whose
  /// pieces are fixed, leaves open those that were named. A saved configuration thus tells one from the
  /// other.
  void decide();
  /// A sentence for each setting that is given but has no effect with this model, for the start of a run.
  std::vector<std::string> notices() const;

  bool is_plugin() const { return model >= ModelKind::kPlugin; }
  bool compressed() const { return model == ModelKind::kCompressedAd || use_compressed_context; }
  /// The block in use: never kAuto.
  TransformerBlock block() const;
  /// The token layout in use: never kAuto.
  TokenLayout layout() const;
  /// The pieces of the block in use: none is kAuto.
  BlockPieces block_pieces() const;
  /// Whether the network is ComposedAd: no plug-in's, and none of those with a name and kernels of their own.
  bool composed() const;
  /// The network for people, its block resolved: "AD with pre-norm blocks: 4 layers, 64 wide, 4 heads, 240
  /// transitions".
  std::string architecture() const;
  /// Of the MLP: tf_n_inner, where the block leaves that choice, or four times the width.
  int64_t inner_width() const;
  int64_t head_size() const { return tf_n_embd / tf_n_head; }
  /// Whether the loss at every position takes a second stream of queries: see TokenStreams.
  bool needs_query_stream() const { return layout() == TokenLayout::kTransition; }
  /// Tokens of two full regions with their markers and the query after them.
  int64_t longest_compressed_sequence() const { return 2 * compress_interval + 4; }
  /// Of a state, an action and a reward, with token_layout: split.
  static constexpr int64_t kSplitTokensAStep = 3;
  /// Tokens of the longest context, without a second stream of queries.
  int64_t longest_context() const;

 private:
  /// What concerns model, tokens and block together, of networks that are not a plug-in's.
  void check_network(Findings& findings) const;
  /// What the model of the environment needs.
  void check_dynamics(Findings& findings) const;
};

}  // namespace adtrain
