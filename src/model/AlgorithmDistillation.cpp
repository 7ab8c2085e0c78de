#include "model/AlgorithmDistillation.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/loss/FusedLinearCrossEntropy.h"
#include "model/ComposedAd.h"
#include "model/CompressedAd.h"
#include "model/CompressedSequence.h"
#include "model/Gpt2Ad.h"
#include "model/NetworkPlan.h"
#include "model/PluginAd.h"
#include "model/PostNormAd.h"
#include "model/PreNormAd.h"
#include "model/TransitionTokens.h"
#include "model/spaces/AnySpaceAd.h"

namespace adtrain {
namespace {

constexpr int64_t kNoAction = -1;  ///< the target of a query at which a region ends

/// fp32 sum of cross-entropies over all queries whose target is not kNoAction.
at::Tensor summed_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, double label_smoothing) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten(), /*weight=*/{},
                                at::Reduction::Sum, kNoAction, label_smoothing);
}

/// int64 (B, Q): the action after each query, kNoAction where a region ends instead.
at::Tensor action_targets(const Batch& batch, LossPositions positions) {
  if (batch.compressed()) return compressed_targets(batch, positions);
  const int64_t length = batch.actions.size(1);
  const int64_t queries = positions == LossPositions::kAll ? length : 1;
  at::Tensor targets = batch.actions.narrow(1, length - queries, queries).to(at::kLong);
  if (batch.current.defined()) {
    const at::Tensor places = at::arange(length - queries, length, batch.current.options());
    targets = targets.masked_fill(places.unsqueeze(0).lt(batch.current.unsqueeze(1)), kNoAction);
  }
  return targets;
}

std::unique_ptr<AlgorithmDistillation> created_by(ParameterFactory factory, const ModelOptions& options,
                                                  const ModelShape& shape) {
  if (options.is_plugin() && shape.spaces.empty())
    return std::make_unique<PluginAd>(options, shape, factory.seed());
  if (!shape.spaces.empty()) return AnySpaceAd::create(options, shape, std::move(factory));
  if (options.compressed()) return std::make_unique<CompressedAd>(options, shape, std::move(factory));
  if (options.composed()) return std::make_unique<ComposedAd>(options, shape, std::move(factory));
  switch (options.block()) {
    case TransformerBlock::kGpt2:
      return std::make_unique<Gpt2Ad>(options, shape, std::move(factory));
    case TransformerBlock::kPostNorm:
      return std::make_unique<PostNormAd>(options, shape, std::move(factory));
    default:
      return std::make_unique<PreNormAd>(options, shape, std::move(factory));
  }
}

}  // namespace

std::unique_ptr<AlgorithmDistillation> AlgorithmDistillation::create(const ModelOptions& options,
                                                                     const ModelShape& shape, uint64_t seed) {
  return created_by(ParameterFactory(seed), options, shape);
}

std::unique_ptr<AlgorithmDistillation> AlgorithmDistillation::without_values(const ModelOptions& options,
                                                                             const ModelShape& shape) {
  return created_by(ParameterFactory::without_values(), options, shape);
}

std::unique_ptr<AlgorithmDistillation> AlgorithmDistillation::to_be_loaded(const ModelOptions& options,
                                                                           const ModelShape& shape,
                                                                           uint64_t seed) {
  return created_by(ParameterFactory::to_be_loaded(seed), options, shape);
}

void AlgorithmDistillation::adopt(ParameterFactory& factory) {
  std::vector<NamedTensor> made = factory.take();
  parameters_ = ParameterBuffer(std::move(made), factory.take_linears());
}

void AlgorithmDistillation::quantise(const std::set<std::string>& names, const WeightQuantisation& how,
                                     at::Device device, at::ScalarType type) {
  parameters_.quantise(names, how, device, type);
  plans_ = {};
}

void AlgorithmDistillation::take_quantised(QuantisedMatrices matrices, const WeightQuantisation& how,
                                           at::Device device, at::ScalarType type) {
  parameters_.take_quantised(std::move(matrices), how, device, type);
  plans_ = {};
}

AlgorithmDistillation::Loss AlgorithmDistillation::loss(const Batch& batch, LossPositions positions,
                                                        bool training) {
  return loss_of(forward(batch, positions, training), action_targets(batch, positions));
}

AlgorithmDistillation::Loss AlgorithmDistillation::loss_of(const Predictions& logits,
                                                           const at::Tensor& targets) const {
  Loss loss;
  loss.targets = targets.numel();
  loss.sum = summed_cross_entropy(logits.actions, targets, options_.label_smoothing);
  at::Tensor right = logits.actions.argmax(-1).eq(targets);
  if (logits.token_types.defined()) {
    const at::Tensor ends = targets.eq(kNoAction);
    const at::Tensor types = at::where(ends, kEndCompress, kTransition);
    loss.sum = loss.sum + options_.token_type_weight * summed_cross_entropy(logits.token_types, types, 0.0);
    right = at::where(ends, logits.token_types.argmax(-1).eq(types), right);
  }
  loss.correct = right.sum();
  return loss;
}

AlgorithmDistillation::Loss AlgorithmDistillation::loss_at(const at::Tensor& queries, const Batch& batch,
                                                           LossPositions positions,
                                                           const Linear& head) const {
  // At the last position every action is a target, at all positions where no episode is borrowed.
  const bool all_targets = positions == LossPositions::kLast || !batch.current.defined();
  const bool fused = plan(positions).fused_loss() && all_targets;
  if (fused && !dynamics_) return fused_loss(queries, batch.actions, head);
  const at::Tensor targets = action_targets(batch, positions);
  Loss loss = fused ? fused_loss(queries, batch.actions, head) : loss_of({head(queries), {}}, targets);
  if (!dynamics_) return loss;
  const int64_t length = batch.actions.size(1), count = targets.size(1);
  const auto at_queries = [&](const at::Tensor& steps) { return steps.narrow(1, length - count, count); };
  // Also where the action is no target: what it led to is true all the same.
  const at::Tensor of_dynamics = dynamics_->loss(
      queries, {at_queries(batch.actions).to(at::kLong), at_queries(batch.rewards).ne(0).to(at::kLong),
                at_queries(state_index(batch.next_states, shape_)).to(at::kLong)});
  loss.sum = loss.sum + options_.dynamics_strength * of_dynamics;
  return loss;
}

std::unique_ptr<Imagination> AlgorithmDistillation::imagination() const {
  if (!dynamics_) return nullptr;
  ImaginationParts parts = imagination_parts();
  parts.dynamics = &*dynamics_;
  return std::make_unique<Imagination>(std::move(parts), options_, shape_);
}

AlgorithmDistillation::Predictions AlgorithmDistillation::predict(const Batch& batch) {
  const at::NoGradGuard no_grad;
  return at_the_query(forward(batch, LossPositions::kLast, /*training=*/false));
}

AlgorithmDistillation::Predictions AlgorithmDistillation::at_the_query(const Predictions& logits) {
  Predictions predictions;
  predictions.actions = logits.actions.squeeze(1).to(at::kFloat);
  if (logits.token_types.defined()) predictions.token_types = logits.token_types.squeeze(1).to(at::kFloat);
  return predictions;
}

AlgorithmDistillation::Rolling AlgorithmDistillation::rolling() {
  const std::optional<Parts> whole = parts();
  if (!whole || !whole->rolling) return nullptr;
  return [parts = whole->rolling(/*first=*/-1)](const Batch& step) {
    const at::NoGradGuard no_grad;
    Tokens tokens = parts.embeddings(step);
    tokens.x = parts.through(tokens, 0, parts.blocks);
    return parts.head(tokens);
  };
}

const kernels::KernelPlan& AlgorithmDistillation::plan(LossPositions positions) const {
  std::optional<ChosenPlan>& chosen = plans_[static_cast<size_t>(positions)];
  if (!chosen || chosen->device != device() || chosen->type != compute_type()) {
    chosen = {device(), compute_type(),
              plan_of(options_, shape_, positions, kernels::DeviceTraits::of(device()), compute_type(),
                      parameters_.is_quantised())};
  }
  return chosen->plan;
}

AlgorithmDistillation::Tokens AlgorithmDistillation::Tokens::to(at::Device device) const {
  Tokens there = *this;
  for (at::Tensor* const tensor : there.tensors()) {
    *tensor = tensor->to(device, tensor->scalar_type(), /*non_blocking=*/true);
  }
  return there;
}

std::vector<at::Tensor*> AlgorithmDistillation::Tokens::tensors() {
  std::vector<at::Tensor*> all = {&x,
                                  &streams.mask,
                                  &streams.mask_over_all_tokens,
                                  &streams.first,
                                  &streams.segments.first,
                                  &streams.segments.end};
  std::erase_if(all, [](const at::Tensor* tensor) { return !tensor->defined(); });
  return all;
}

TokenStreams AlgorithmDistillation::masked(const TokenStreams& streams, const at::Tensor& x,
                                           LossPositions positions) const {
  return plan(positions).reads_masks() ? streams.with_masks(x) : streams;
}

AlgorithmDistillation::Tokens AlgorithmDistillation::tokens_by_kernel(
    const Batch& batch, LossPositions positions, const kernels::EmbeddingParameters& parameters) const {
  const at::Tensor x = kernels::fused_embedding(
      {batch.states, batch.actions, batch.rewards, batch.next_states},
      token_shape(batch, shape_, positions, options_.tf_n_embd), parameters, main_gradients_);
  const int64_t length = batch.states.size(1), queries = positions == LossPositions::kAll ? length : 0;
  return {x, masked({.context = length, .queries = queries}, x, positions), std::max<int64_t>(queries, 1)};
}

AlgorithmDistillation::Loss AlgorithmDistillation::fused_loss(const at::Tensor& queries,
                                                              const at::Tensor& actions,
                                                              const Linear& head) const {
  const kernels::LinearCrossEntropySum found = kernels::fused_linear_cross_entropy(
      queries, actions, {head.weight, head.bias}, options_.label_smoothing, main_gradients_);
  return {.sum = found.sum, .correct = found.correct, .targets = queries.size(0) * queries.size(1)};
}

DropoutRates AlgorithmDistillation::dropout_rates(bool training) const {
  return training ? DropoutRates{options_.tf_dropout, options_.tf_attn_dropout} : DropoutRates{};
}

}  // namespace adtrain
