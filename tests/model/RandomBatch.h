#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/Random.h"
#include "model/AlgorithmDistillation.h"

/// Small models and random input for tests, by the seed that they are given or libtorch's generator.
namespace adtrain::testing {

struct Variant {
  std::string name;
  ModelOptions options;
};

/// Presets of composed networks, and combinations of pieces and token layouts.
inline std::vector<std::string> composed_names() {
  return {"xland",
          "vintix",
          "pre_norm_previous",
          "pre_norm_pieces",
          "xland_transition",
          "vintix_rotary",
          "xland_without_positions"};
}

/// Chooses what such a name stands for; nothing for other names.
inline void compose(const std::string& name, ModelOptions& options) {
  if (name == "xland") options.transformer_block = TransformerBlock::kXland;
  if (name == "vintix") {
    options.transformer_block = TransformerBlock::kVintix;
    options.first_step = FirstStep::kLearned;
  }
  if (name == "pre_norm_previous") {
    options.transformer_block = TransformerBlock::kPreNorm;
    options.token_layout = TokenLayout::kPrevious;
    options.tf_n_inner = 40;
  }
  if (name == "pre_norm_pieces") {
    options.transformer_block = TransformerBlock::kPreNorm;
    options.pieces = {.norm = NormKind::kLayer,
                      .final_norm = Choice::kOn,
                      .positions = PositionKind::kLearned,
                      .bias = BiasPlaces::kNone};
  }
  if (name == "xland_transition") {
    options.transformer_block = TransformerBlock::kXland;
    options.token_layout = TokenLayout::kTransition;
    options.pieces = {.norm = NormKind::kRms, .qk_norm = Choice::kOn, .bias = BiasPlaces::kAttention};
  }
  if (name == "vintix_transition") {
    options.transformer_block = TransformerBlock::kVintix;
    options.token_layout = TokenLayout::kTransition;
  }
  if (name == "vintix_rotary") {
    options.transformer_block = TransformerBlock::kVintix;
    options.token_layout = TokenLayout::kTransition;
    options.pieces = {
        .final_norm = Choice::kOff, .mlp = MlpKind::kSwiglu, .positions = PositionKind::kRotary};
  }
  if (name == "xland_without_positions") {
    options.transformer_block = TransformerBlock::kXland;
    options.pieces.positions = PositionKind::kNone;
  }
}

/// Small enough for a test, with everything that could go wrong in it: several layers, heads and regions.
inline Variant variant(const std::string& name) {
  ModelOptions options;
  options.tf_n_embd = 16;
  options.tf_n_layer = 2;
  options.tf_n_head = 2;
  options.n_transit = 9;
  options.label_smoothing = 0.1;
  compose(name, options);
  if (name == "post_norm") options.transformer_block = TransformerBlock::kPostNorm;
  if (name == "gpt2") options.model = ModelKind::kGpt2;
  if (name == "compressed") {
    options.use_compressed_context = true;
    options.compress_interval = 4;
    options.n_transit = 12;
  }
  return {name, options};
}

inline std::vector<Variant> plain_variants() {
  std::vector<Variant> variants = {variant("pre_norm"), variant("post_norm"), variant("gpt2")};
  for (const std::string& name : composed_names()) variants.push_back(variant(name));
  return variants;
}

inline std::unique_ptr<AlgorithmDistillation> small_model(const Variant& variant, uint64_t seed = 7) {
  return AlgorithmDistillation::create(variant.options, ModelShape{}, seed);
}

inline Batch random_plain(int64_t rows, int64_t transitions, const ModelShape& shape = {}) {
  Batch batch;
  batch.states = at::randint(shape.grid_size, {rows, transitions, 2}, at::kInt);
  batch.actions = at::randint(shape.num_actions, {rows, transitions}, at::kInt);
  batch.rewards = at::randint(2, {rows, transitions}, at::kFloat);
  batch.next_states = at::randint(shape.grid_size, {rows, transitions, 2}, at::kInt);
  return batch;
}

/// Rows of these lengths; padding is random too, as it must not matter.
inline Batch random_compressed(const std::vector<int32_t>& previous, const std::vector<int32_t>& current,
                               int64_t interval, const ModelShape& shape = {}) {
  const auto rows = static_cast<int64_t>(previous.size());
  Batch batch = random_plain(rows, 2 * interval, shape);
  batch.previous = at::tensor(previous);
  batch.current = at::tensor(current);
  batch.query_state = at::randint(shape.grid_size, {rows, 2}, at::kInt);
  batch.query_action =
      at::randint(shape.num_actions, {rows}, at::kInt).masked_fill_(batch.current.eq(interval), -1);
  return batch;
}

/// Part of a plain batch: `count` entries of dimension `axis`, 0 for rows and 1 for transitions.
inline Batch part(const Batch& batch, int64_t axis, int64_t first, int64_t count) {
  Batch cut;
  cut.states = batch.states.narrow(axis, first, count);
  cut.actions = batch.actions.narrow(axis, first, count);
  cut.rewards = batch.rewards.narrow(axis, first, count);
  cut.next_states = batch.next_states.narrow(axis, first, count);
  return cut;
}

/// The first `transitions` of every plain row.
inline Batch prefix(const Batch& batch, int64_t transitions) {
  return part(batch, 1, 0, transitions);
}

/// Largest difference, relative to the largest expected value.
inline double relative_error(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12)).item<double>();
}

/// d loss / d parameters of one backward pass, fp32, lying like the parameters' flat tensor.
inline at::Tensor flat_gradient(AlgorithmDistillation& model, const at::Tensor& loss) {
  const std::vector<at::Tensor> leaves = model.parameters().leaves();
  for (const at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
  loss.backward();
  at::Tensor gradient = at::zeros_like(model.parameters().flat());
  for (size_t index = 0; const auto& [name, view] : model.parameters().views_of(gradient)) {
    const at::Tensor& leaf = leaves[index++];
    if (leaf.grad().defined()) at::Tensor(view).copy_(leaf.grad());
  }
  return gradient;
}

}  // namespace adtrain::testing
