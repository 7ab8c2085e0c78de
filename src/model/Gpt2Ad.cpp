#include "model/Gpt2Ad.h"

#include <cmath>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/block/pre_norm/PreNormSublayers.h"
#include "kernels/dropout/Dropout.h"
#include "kernels/embedding/FusedStepEmbedding.h"
#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

constexpr double kDeviation = 0.02;
constexpr int64_t kTokensAStep = ModelOptions::kSplitTokensAStep;

/// GPT-2 initialises the projections that add to the residual stream smaller, by the square root of their
/// number.
double residual_deviation(const ModelOptions& options) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(options.tf_n_layer));
}

}  // namespace

Gpt2Block::Gpt2Block(ParameterFactory& factory, const std::string& name, const ModelOptions& options)
    : heads_(options.tf_n_head),
      head_size_(options.head_size()),
      ln_1_(layer_norm(factory, name + ".ln_1", options.tf_n_embd)),
      c_attn_(normal_linear(factory, name + ".attn.c_attn", options.tf_n_embd, 3 * options.tf_n_embd,
                            kDeviation)),
      c_proj_(normal_linear(factory, name + ".attn.c_proj", options.tf_n_embd, options.tf_n_embd,
                            residual_deviation(options))),
      ln_2_(layer_norm(factory, name + ".ln_2", options.tf_n_embd)),
      mlp_{.gate = {},
           .up = normal_linear(factory, name + ".mlp.c_fc", options.tf_n_embd, options.inner_width(),
                               kDeviation),
           .down = normal_linear(factory, name + ".mlp.c_proj", options.inner_width(), options.tf_n_embd,
                                 residual_deviation(options)),
           .gelu = kernels::GeluKind::kTanh} {}

std::vector<at::Tensor> Gpt2Block::parameters() const {
  return parameters_of(ln_1_, c_attn_, c_proj_, ln_2_, mlp_.up, mlp_.down);
}

at::Tensor Gpt2Block::in_pass(const at::Tensor& x, const Pass& pass, const BlockPlace& place) const {
  if (!pass.own) return by_plain_operators(x, pass, place);
  return kernels::gpt2_block_by_sublayers(x, parameters(), pass.streams, place.rows, place.number,
                                          pass.own->running(place.run));
}

at::Tensor Gpt2Block::by_plain_operators(const at::Tensor& x, const Pass& pass,
                                         const BlockPlace& place) const {
  const DropoutRates& rates = pass.rates;
  const int64_t rows = place.rows;
  const at::Tensor read = attend(heads_of(ln_1_(x)), rows, pass.streams, {}, rates.attention);

  const at::Tensor y = last_of(x, 1, rows) + kernels::dropout(c_proj_(read), rates.hidden);
  return y + kernels::dropout(mlp_(ln_2_(y), place.run, pass.recomputes_mlp), rates.hidden);
}

at::Tensor Gpt2Block::heads_of(const at::Tensor& normed) const {
  return c_attn_(normed)
      .view({normed.size(0), normed.size(1), 3, heads_, head_size_})
      .permute({2, 0, 3, 1, 4});
}

at::Tensor Gpt2Block::newest(const at::Tensor& x, RollingKeys& keys, const NewestTokens& tokens) const {
  const at::Tensor qkv = heads_of(ln_1_(x));
  const at::Tensor y = x + c_proj_(keys.attend(qkv[0], qkv[1], qkv[2], tokens));
  return y + mlp_(ln_2_(y), kernels::PartRun::kForValues, /*recomputes=*/false);
}

Gpt2Ad::Gpt2Ad(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape),
      embed_state_(embedding(factory, "embed_state", shape.states(), options.tf_n_embd, kDeviation)),
      embed_action_(embedding(factory, "embed_action", shape.num_actions, options.tf_n_embd, kDeviation)),
      embed_reward_(normal_linear(factory, "embed_reward", 1, options.tf_n_embd, kDeviation)),
      wpe_(embedding(factory, "transformer.wpe", options.longest_context(), options.tf_n_embd, kDeviation)) {
  for (int64_t layer = 0; layer < options.tf_n_layer; ++layer) {
    blocks_.emplace_back(factory, fmt::format("transformer.h.{}", layer), options);
  }
  ln_f_ = layer_norm(factory, "transformer.ln_f", options.tf_n_embd);
  pred_action_ = normal_linear(factory, "pred_action", options.tf_n_embd, shape.num_actions, kDeviation);
  adopt(factory);
}

at::Tensor Gpt2Ad::tokens(const Batch& batch) const {
  const int64_t context = batch.states.size(1) - 1;
  const at::Tensor states = embed_state_(state_index(batch.states, shape()));
  const at::Tensor actions = embed_action_(batch.actions.narrow(1, 0, context));
  const at::Tensor rewards =
      embed_reward_(batch.rewards.narrow(1, 0, context).unsqueeze(-1).to(compute_type()));
  const at::Tensor steps = at::stack({states.narrow(1, 0, context), actions, rewards}, 2);
  return at::cat({steps.flatten(1, 2), states.narrow(1, context, 1)}, 1);
}

AlgorithmDistillation::Loss Gpt2Ad::loss(const Batch& batch, LossPositions positions, bool training) {
  return loss_at(encoded(batch, positions, training), batch, positions, pred_action_);
}

AlgorithmDistillation::Predictions Gpt2Ad::forward(const Batch& batch, LossPositions positions,
                                                   bool training) {
  return {pred_action_(encoded(batch, positions, training)), {}};
}

at::Tensor Gpt2Ad::encoded(const Batch& batch, LossPositions positions, bool training) const {
  const DropoutRates rates = dropout_rates(training);
  Tokens input = embedded(batch, positions);
  input.x = kernels::dropout(input.x, rates.hidden);
  return at_states(through(input, 0, std::ssize(blocks_), positions, rates));
}

std::optional<Gpt2Ad::Parts> Gpt2Ad::parts() {
  constexpr LossPositions kLast = LossPositions::kLast;
  return with_rolling({std::ssize(blocks_), [this](const Batch& batch) { return embedded(batch, kLast); },
                       [this](const Tokens& tokens, int64_t first, int64_t end) {
                         return through(tokens, first, end, kLast, /*rates=*/{});
                       },
                       [this](const Tokens& tokens) {
                         return at_the_query({pred_action_(at_states(tokens.x)), {}});
                       }},
                      newest_step());
}

NewestStep Gpt2Ad::newest_step() const {
  NewestStep step = {.window = wpe_.weight.size(0), .passing = 0};
  step.tokens = [this](const Batch& rows) {
    const at::Tensor all = tokens(rows);
    // The state of the step before is there since then.
    return Tokens{last_of(all, 1, all.size(1) > 1 ? kTokensAStep : 1), {}, /*queries=*/1};
  };
  step.with_positions = [this](const at::Tensor& x, const RollingPlaces& places) {
    return x + wpe_.weight.index_select(0, places.counts() - 1);
  };
  step.through = [this](const at::Tensor& x, int64_t first, int64_t end, RollingBlocks& kept) {
    return newest_through(blocks_, x, first, end, kept,
                          NewestTokens::plain(kept.places, plan(LossPositions::kLast)));
  };
  return step;
}

Gpt2Ad::Tokens Gpt2Ad::embedded(const Batch& batch, LossPositions positions) const {
  const at::Tensor x =
      plan(positions).fused_embedding() ? placed_tokens_by_kernel(batch) : placed_tokens(batch);
  return {x, masked({.context = x.size(1)}, x, positions), /*queries=*/1};
}

at::Tensor Gpt2Ad::placed_tokens(const Batch& batch) const {
  const at::Tensor x = tokens(batch);
  return x + wpe_.weight.narrow(0, 0, x.size(1));
}

at::Tensor Gpt2Ad::placed_tokens_by_kernel(const Batch& batch) const {
  return kernels::fused_step_embedding({batch.states, batch.actions, batch.rewards}, shape().grid_size,
                                       {.states = embed_state_.weight,
                                        .actions = embed_action_.weight,
                                        .reward_weight = embed_reward_.values(),
                                        .reward_bias = embed_reward_.bias,
                                        .positions = wpe_.weight},
                                       main_gradients());
}

at::Tensor Gpt2Ad::through(const Tokens& tokens, int64_t first, int64_t end, LossPositions positions,
                           const DropoutRates& rates) const {
  at::Tensor x = tokens.x;
  const kernels::KernelPlan& plan = this->plan(positions);
  const BlockRecomputation again = recomputation(positions, rates);
  Gpt2Block::Pass of_all = {tokens.streams, rates, again.of_mlp(), {}};
  if (plan.by_sublayers()) {
    of_all.own.emplace(x, options().tf_n_head, rates.attention, rates.hidden, plan.own_attention(),
                       main_gradients());
    of_all.own->recomputes_mlp = again.of_mlp();
  }
  const auto pass = std::make_shared<const Gpt2Block::Pass>(std::move(of_all));
  for (int64_t layer = first; layer < end; ++layer) {
    const bool single = positions == LossPositions::kLast && layer + 1 == std::ssize(blocks_);
    const BlockPlace place = {.number = layer, .rows = single ? 1 : x.size(1)};
    x = block_output(blocks_[static_cast<size_t>(layer)], x, pass, place, again);
  }
  return x;
}

at::Tensor Gpt2Ad::at_states(const at::Tensor& x) const {
  return ln_f_(x.slice(1, 0, std::nullopt, kTokensAStep));
}

}  // namespace adtrain
