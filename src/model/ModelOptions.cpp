#include "model/ModelOptions.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "model/PluginNetworks.h"

namespace adtrain {
namespace {

std::vector<std::pair<std::string, ModelKind>> kinds_by_name() {
  std::vector<std::pair<std::string, ModelKind>> kinds = {
      {"AD", ModelKind::kAd}, {"CompressedAD", ModelKind::kCompressedAd}, {"GPT2", ModelKind::kGpt2}};
  int kind = static_cast<int>(ModelKind::kPlugin);
  for (const PluginNetwork& network : PluginNetworks::all())
    kinds.emplace_back(network.name, static_cast<ModelKind>(kind++));
  return kinds;
}

/// The pieces of a block as published.
BlockPieces published_pieces(TransformerBlock block) {
  switch (block) {
    case TransformerBlock::kXland:
      return {NormKind::kLayer,     Choice::kOff, MlpKind::kGelu,
              PositionKind::kAlibi, Choice::kOff, BiasPlaces::kAll};
    case TransformerBlock::kVintix:
      return {NormKind::kLayer,     Choice::kOn, MlpKind::kGelu,
              PositionKind::kAlibi, Choice::kOn, BiasPlaces::kAll};
    case TransformerBlock::kPostNorm:
      return {NormKind::kLayer,       Choice::kOff, MlpKind::kGelu,
              PositionKind::kLearned, Choice::kOff, BiasPlaces::kAll};
    case TransformerBlock::kGpt2:
      return {NormKind::kLayer,       Choice::kOn,  MlpKind::kGelu,
              PositionKind::kLearned, Choice::kOff, BiasPlaces::kAll};
    default:
      return {NormKind::kRms,        Choice::kOff, MlpKind::kSwiglu,
              PositionKind::kRotary, Choice::kOff, BiasPlaces::kAttention};
  }
}

const std::vector<std::pair<std::string, TransformerBlock>> kBlocks = {
    {"auto", TransformerBlock::kAuto},          {"pre_norm", TransformerBlock::kPreNorm},
    {"post_norm", TransformerBlock::kPostNorm}, {"gpt2", TransformerBlock::kGpt2},
    {"xland", TransformerBlock::kXland},        {"vintix", TransformerBlock::kVintix}};

const std::vector<std::pair<std::string, TokenLayout>> kLayouts = {{"auto", TokenLayout::kAuto},
                                                                   {"transition", TokenLayout::kTransition},
                                                                   {"previous", TokenLayout::kPrevious},
                                                                   {"split", TokenLayout::kSplit}};

const std::vector<std::pair<std::string, Recompute>> kRecomputes = {
    {"none", Recompute::kNone}, {"mlp", Recompute::kMlp}, {"block", Recompute::kBlock}};

template <class Enum>
std::string spelling_of(const std::vector<std::pair<std::string, Enum>>& values, Enum wanted) {
  return std::ranges::find(values, wanted, &std::pair<std::string, Enum>::second)->first;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds_by_name()) names.push_back(name);
  return names;
}

void ModelOptions::declare(Section& section) {
  section.key(
      "model", model, kinds_by_name(),
      "AD: one token a transition. CompressedAD: the same in regions between learned markers. GPT2: state, "
      "action and reward are tokens of their own.");
  section.key(
      "transformer_block", transformer_block, kBlocks,
      "pre_norm: RMSNorm, SwiGLU, rotary positions. post_norm: torch.nn.TransformerEncoderLayer, learned "
      "positions. gpt2: GPT-2's. xland: LayerNorm before sublayers, GELU, ALiBi, as the baseline of "
      "XLand-100B. vintix: the same, and LayerNorm of queries, of keys and at the end. tf_norm to tf_bias "
      "change single pieces of pre_norm, xland and vintix. auto: gpt2 for split tokens, post_norm for "
      "compressed context, else pre_norm.");
  pieces.declare(section);
  section.key(
      "token_layout", token_layout, kLayouts,
      "What a token holds. transition: state, action, reward and next state; the query is a state alone. "
      "previous: the previous action and reward and the present state, so that every token is a query. "
      "split: a state, an action or a reward, as with model GPT2. auto: split for model GPT2, previous for "
      "xland, vintix and tasks of your own, else transition.");
  section.key("first_step", first_step,
              {{"auto", FirstStep::kAuto}, {"zeros", FirstStep::kZeros}, {"learned", FirstStep::kLearned}},
              "What stands for the previous action and reward at the first step of a window, with "
              "token_layout previous. zeros: action 0 and reward 0. learned: parameters, with tasks of your "
              "own at the first step of each episode. auto: learned for tasks of your own with vintix, else "
              "zeros.");
  space_pieces.declare(section);
  section.key("tf_n_embd", tf_n_embd, "Width of the transformer.")
      .unit("features")
      .at_least(1)
      .at_most(65536);
  section.key("tf_n_layer", tf_n_layer, "Transformer blocks.").unit("layers").at_least(1).at_most(10000);
  section.key("tf_n_head", tf_n_head, "Attention heads; they share the width.")
      .unit("heads")
      .at_least(1)
      .at_most(65536);
  section
      .key("tf_n_inner", tf_n_inner,
           "Width of the MLP of pre_norm, xland and vintix; null is 4 × tf_n_embd, which the other blocks "
           "always use.")
      .unit("features")
      .at_least(1)
      .at_most(1e6);
  section.key("tf_dropout", tf_dropout, "Dropout, where the block has it: docs/models.md.")
      .at_least(0)
      .below(1);
  section.key("tf_attn_dropout", tf_attn_dropout, "Dropout of attention weights.").at_least(0).below(1);
  section
      .key("n_transit", n_transit,
           "Length of a window: context and query. With compressed context, the size of the position table "
           "only.")
      .unit("transitions")
      .at_least(2)
      .at_most(1e6);
  section.key("use_compressed_context", use_compressed_context, "The same as model: CompressedAD.");
  section
      .key("compress_interval", compress_interval,
           "Length of a region of compressed context, as a rule one PPO rollout.")
      .unit("transitions")
      .at_least(1)
      .at_most(1e6);
  section
      .key("token_type_weight", token_type_weight,
           "Compressed context: weight of predicting where a region ends, beside the action's 1.")
      .at_least(0);
  section
      .key("label_smoothing", label_smoothing,
           "Share of the target's probability that is spread over all actions.")
      .at_least(0)
      .below(1);
  section.key("dynamics", dynamics,
              "Whether the network also learns the environment: from what it reads at a query and the action "
              "taken there it predicts whether the step is rewarded, and the next state. Evaluation can then "
              "plan: planning_horizon. Grid families, token_layout transition.");
  section
      .key("dynamics_strength", dynamics_strength,
           "Weight of these two cross-entropies in the loss, beside the action's 1.")
      .at_least(0);
  section
      .key("fused_kernels", fused_kernels,
           {{"auto", FusedKernels::kAuto}, {"on", FusedKernels::kOn}, {"off", FusedKernels::kOff}},
           "GPU: whether a whole transformer block runs as one operation by kernels made for small networks "
           "(bf16; width 32 or 64, heads of 8, 16 or 32, up to 256 transitions or, with compressed context, "
           "regions of up to 126). auto: where they fit; the log says whether and why not; 16-bit blocks "
           "that do not run so have kernels of our own between library products. on: training does not "
           "start where they do not fit. off: library kernels.")
      .free_on_resume();
  section
      .key("recompute", recompute, kRecomputes,
           "What training computes again in the backward pass, instead of keeping it in memory from the "
           "forward pass on. mlp: the first product of each block's MLP and its activation. block: whole "
           "blocks, of which the input alone is kept. Gradients and dropout are the same. Not for a "
           "plug-in's network.")
      .free_on_resume();
  section.ignore("flash_attn", "the attention kernel is chosen by device and shape");
}

void ModelOptions::check(Findings& findings) const {
  if (tf_n_embd % tf_n_head != 0) {
    findings.add("tf_n_head",
                 fmt::format("found {} heads, which do not divide tf_n_embd = {}; choose a divisor",
                             tf_n_head, tf_n_embd));
  } else if (!is_plugin() && block_pieces().positions == PositionKind::kRotary && head_size() % 2 != 0) {
    findings.add(
        "tf_n_head",
        fmt::format("found {} heads of {} features; rotary positions turn pairs of features, so a head "
                    "needs an even number: change tf_n_head or tf_n_embd",
                    tf_n_head, head_size()));
  }
  if (is_plugin()) {
    if (use_compressed_context) {
      findings.add("use_compressed_context",
                   "found true with a plug-in's network, which has no regions; set it to false");
    }
    if (recompute != Recompute::kNone) {
      findings.add("recompute", fmt::format("found {} with a plug-in's network, whose blocks nobody else "
                                            "knows; expected none, or another model",
                                            spelling_of(kRecomputes, recompute)));
    }
  } else {
    check_network(findings);
  }
  if (!is_plugin() && compressed() && n_transit < longest_compressed_sequence()) {
    const int64_t fitting = (n_transit - 4) / 2;
    findings.add(
        "n_transit",
        fmt::format(
            "found {} positions; expected at least {}: two regions of compress_interval = {} transitions, "
            "and <compress>, </compress>, <compress> and the query. Raise n_transit{}",
            n_transit, longest_compressed_sequence(), compress_interval,
            fitting < 1 ? "" : fmt::format(", or lower compress_interval to {}", fitting)));
  }
  check_dynamics(findings);
}

void ModelOptions::check_dynamics(Findings& findings) const {
  if (!dynamics) return;
  const auto refuse = [&](const std::string& why) {
    findings.add("dynamics",
                 fmt::format("found true with {}; expected false, or model: AD with token_layout: "
                             "transition",
                             why));
  };
  if (is_plugin()) {
    refuse("a plug-in's network, which predicts actions alone");
  } else if (compressed()) {
    refuse("compressed context, whose regions end in between");
  } else if (layout() != TokenLayout::kTransition) {
    refuse(fmt::format("token_layout: {}, whose tokens hold no next state", spelling_of(kLayouts, layout())));
  }
}

void ModelOptions::check_network(Findings& findings) const {
  const bool split = layout() == TokenLayout::kSplit;
  if (model == ModelKind::kGpt2 && use_compressed_context) {
    findings.add("use_compressed_context",
                 "found true with model: GPT2, which has no regions; set it to false or use model: AD");
  } else if (model == ModelKind::kGpt2 && !split) {
    findings.add("token_layout",
                 fmt::format("found {} with model: GPT2, whose tokens are split; expected split or "
                             "auto, or model: AD",
                             spelling_of(kLayouts, token_layout)));
  } else if (compressed() && layout() != TokenLayout::kTransition) {
    findings.add("token_layout",
                 fmt::format("found {} with compressed context, whose regions hold transitions; "
                             "expected transition or auto",
                             spelling_of(kLayouts, token_layout)));
  } else if (token_layout == TokenLayout::kSplit && split != (block() == TransformerBlock::kGpt2)) {
    findings.add(
        "token_layout",
        fmt::format("found split with transformer_block: {}, whose tokens are of a step each; expected "
                    "transition, previous or auto, or model: GPT2 with transformer_block: auto",
                    spelling_of(kBlocks, block())));
  } else if (split != (block() == TransformerBlock::kGpt2)) {
    findings.add("transformer_block",
                 "found a block that does not fit the model; model GPT2 and block gpt2 go together only "
                 "with each other: use auto");
  } else if (compressed() && block() != TransformerBlock::kPostNorm) {
    findings.add("transformer_block",
                 fmt::format("found {} with compressed context, which is built on post_norm; use auto",
                             spelling_of(kBlocks, block())));
  } else if (layout() == TokenLayout::kPrevious && block() == TransformerBlock::kPostNorm) {
    findings.add("token_layout",
                 "found previous with transformer_block: post_norm, whose tokens are transitions; expected "
                 "transition or auto, or transformer_block pre_norm, xland or vintix");
  }
  const bool fixed = block() == TransformerBlock::kPostNorm || block() == TransformerBlock::kGpt2;
  if (fixed) {
    pieces.check_against(published_pieces(block()), "transformer_block: " + spelling_of(kBlocks, block()),
                         findings);
  }
}

void ModelOptions::check_own_tasks(Findings& findings) const {
  const std::string only = "expected AD, whose tokens can hold any space";
  if (dynamics) {
    findings.add("dynamics",
                 "found true with tasks of your own, whose networks see no next states; expected false");
  }
  if (is_plugin()) {
    findings.add("model",
                 "found a plug-in's network with tasks of your own, which it does not know; " + only);
  } else if (model == ModelKind::kGpt2) {
    findings.add("model", "found GPT2 with tasks of your own; " + only);
  } else if (compressed()) {
    findings.add(model == ModelKind::kCompressedAd ? "model" : "use_compressed_context",
                 "found compressed context with tasks of your own, which needs the grid families' states; "
                 "expected model: AD and use_compressed_context: false");
  } else if (transformer_block == TransformerBlock::kPostNorm ||
             transformer_block == TransformerBlock::kGpt2) {
    findings.add("transformer_block",
                 fmt::format("found {} with tasks of your own, for which its pieces are not made; expected "
                             "pre_norm, xland or vintix",
                             spelling_of(kBlocks, transformer_block)));
  } else if (token_layout != TokenLayout::kAuto && token_layout != TokenLayout::kPrevious) {
    findings.add("token_layout", fmt::format("found {} with tasks of your own, whose observations may be of "
                                             "any space; expected previous or auto",
                                             spelling_of(kLayouts, token_layout)));
  } else {
    of_own_tasks().check(findings);
    constexpr int64_t kLeastWidth = 4;
    if (block() == TransformerBlock::kVintix && (tf_n_embd % 2 != 0 || tf_n_embd < kLeastWidth)) {
      findings.add("tf_n_embd",
                   fmt::format("found {} with transformer_block: vintix and tasks of your own, whose tokens "
                               "are two features of the reward and equal halves of the others; expected an "
                               "even number from {} on",
                               tf_n_embd, kLeastWidth));
    }
  }
}

ModelOptions ModelOptions::of_own_tasks() const {
  ModelOptions options = *this;
  if (token_layout == TokenLayout::kAuto) options.token_layout = TokenLayout::kPrevious;
  if (first_step == FirstStep::kAuto) {
    options.first_step =
        options.block() == TransformerBlock::kVintix ? FirstStep::kLearned : FirstStep::kZeros;
  }
  return options;
}

void ModelOptions::decide() {
  if (first_step == FirstStep::kAuto) first_step = FirstStep::kZeros;
  if (is_plugin()) return;
  const TokenLayout in_use = layout();
  if (composed()) {
    token_layout = in_use;
    pieces = block_pieces();
  } else {
    token_layout = TokenLayout::kAuto;
    if (layout() != in_use) token_layout = in_use;
    pieces = BlockPieces();
  }
}

std::vector<std::string> ModelOptions::notices() const {
  std::vector<std::string> notices;
  if (is_plugin()) {
    for (const std::string& setting : pieces.chosen())
      notices.push_back(setting + " has no effect: the network is a plug-in's");
    if (token_layout != TokenLayout::kAuto) {
      notices.push_back(fmt::format("token_layout = {} has no effect: the network is a plug-in's",
                                    spelling_of(kLayouts, token_layout)));
    }
  }
  if (first_step == FirstStep::kLearned && (is_plugin() || layout() != TokenLayout::kPrevious)) {
    notices.push_back("first_step = learned has no effect: it is for token_layout previous");
  }
  if (tf_n_inner && *tf_n_inner != inner_width()) {
    notices.push_back(
        fmt::format("tf_n_inner = {} has no effect: this block's MLP is 4 × tf_n_embd = {} wide", *tf_n_inner,
                    inner_width()));
  }
  if (compressed()) {
    notices.push_back(fmt::format(
        "n_transit = {} only sizes the position table: compressed sequences have at most {} tokens",
        n_transit, longest_compressed_sequence()));
  }
  if (transformer_block == TransformerBlock::kAuto && block() == TransformerBlock::kPreNorm && !is_plugin() &&
      !composed()) {
    notices.push_back(
        "transformer_block: auto means pre_norm for model AD, the network of ad_dicp.yaml; the other Python "
        "project's ad_dr.yaml means post_norm: name the one that is meant");
  }
  return notices;
}

TransformerBlock ModelOptions::block() const {
  if (transformer_block != TransformerBlock::kAuto) return transformer_block;
  if (layout() == TokenLayout::kSplit) return TransformerBlock::kGpt2;
  return compressed() ? TransformerBlock::kPostNorm : TransformerBlock::kPreNorm;
}

TokenLayout ModelOptions::layout() const {
  if (token_layout != TokenLayout::kAuto) return token_layout;
  if (model == ModelKind::kGpt2) return TokenLayout::kSplit;
  const bool causal_stream =
      transformer_block == TransformerBlock::kXland || transformer_block == TransformerBlock::kVintix;
  return causal_stream && !compressed() ? TokenLayout::kPrevious : TokenLayout::kTransition;
}

BlockPieces ModelOptions::block_pieces() const {
  return pieces.or_else(published_pieces(block()));
}

bool ModelOptions::composed() const {
  if (is_plugin() || compressed()) return false;
  switch (block()) {
    case TransformerBlock::kPostNorm:
    case TransformerBlock::kGpt2:
      return false;
    case TransformerBlock::kPreNorm:
      return layout() != TokenLayout::kTransition ||
             block_pieces() != published_pieces(TransformerBlock::kPreNorm);
    default:
      return true;
  }
}

std::string ModelOptions::architecture() const {
  std::string name;
  for (const auto& [word, kind] : kinds_by_name()) {
    if (kind == model) name = word;
  }
  const std::string sizes =
      fmt::format("{} layers, {} wide, {} heads, {}", tf_n_layer, tf_n_embd, tf_n_head,
                  compressed() ? fmt::format("regions of {} transitions", compress_interval)
                               : fmt::format("{} transitions", n_transit));
  if (is_plugin()) return fmt::format("{}, a plug-in's: {}", name, sizes);
  if (composed()) {
    return fmt::format("{} with {} blocks ({}), {} tokens: {}", name, spelling_of(kBlocks, block()),
                       block_pieces().text(), spelling_of(kLayouts, layout()), sizes);
  }
  const char* blocks = block() == TransformerBlock::kPreNorm    ? "pre-norm"
                       : block() == TransformerBlock::kPostNorm ? "post-norm"
                                                                : "GPT-2's";
  return fmt::format("{} with {} blocks: {}", name, blocks, sizes);
}

int64_t ModelOptions::longest_context() const {
  if (compressed()) return longest_compressed_sequence();
  // The last step is the state alone that is asked about.
  return layout() == TokenLayout::kSplit ? kSplitTokensAStep * (n_transit - 1) + 1 : n_transit;
}

int64_t ModelOptions::inner_width() const {
  const bool fixed = block() == TransformerBlock::kPostNorm || block() == TransformerBlock::kGpt2;
  return fixed ? 4 * tf_n_embd : tf_n_inner.value_or(4 * tf_n_embd);
}

}  // namespace adtrain
