#include "model/spaces/AnySpaceAd.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "model/spaces/SpaceFit.h"

namespace adtrain {
namespace {

std::vector<ActionHead> heads_of(ParameterFactory& factory, const ModelOptions& options,
                                 const std::vector<TaskSpaces>& groups) {
  std::vector<ActionHead> heads;
  for (const TaskSpaces& spaces : groups) {
    factory.begin_group(spaces.group);
    heads.emplace_back(factory, options, spaces, Initialisation(options));
  }
  factory.begin_group("");
  return heads;
}

/// Of packed rows, of all parts.
TokenSegments segments_of(const Batch& batch) {
  if (batch.parts.empty()) return TokenSegments::of(batch.segment_first);
  if (!batch.parts.front().packed()) return {};
  std::vector<at::Tensor> first;
  for (const Batch& part : batch.parts) first.push_back(part.segment_first);
  return TokenSegments::of(at::cat(first));
}

}  // namespace

std::unique_ptr<AnySpaceAd> AnySpaceAd::create(const ModelOptions& options, const ModelShape& shape,
                                               ParameterFactory factory) {
  Findings findings;
  options.check_own_tasks(findings);
  if (findings.empty()) check_spaces(options, shape.spaces, findings);
  std::string errors;
  for (const auto& [key, message] : findings.all())
    errors += fmt::format("{}{}: {}", errors.empty() ? "" : "\n", key, message);
  if (!errors.empty()) throw ConfigError(errors);
  return std::make_unique<AnySpaceAd>(options.of_own_tasks(), shape, std::move(factory));
}

AnySpaceAd::AnySpaceAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape),
      tokens_(factory, options, shape.spaces, Initialisation(options)),
      stack_(factory, options, Initialisation(options)),
      heads_(heads_of(factory, options, shape.spaces)) {
  adopt(factory);
  const std::vector<NamedTensor> made = parameters().named();
  for (size_t group = 0; shape.spaces.size() > 1 && group < shape.spaces.size(); ++group) {
    const std::string prefix = ParameterFactory::prefix_of(shape.spaces[group].group);
    std::vector<size_t>& places = own_parameters_.emplace_back();
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i].name.starts_with(prefix)) places.push_back(i);
    }
  }
}

at::Tensor AnySpaceAd::queries_of(const Batch& batch, LossPositions positions, bool training) {
  const kernels::KernelPlan& plan = this->plan(positions);
  const at::Tensor x = tokens_(batch, {plan, main_gradients()});
  const int64_t queries = positions == LossPositions::kAll ? x.size(1) : 1;
  const DropoutRates rates = dropout_rates(training);
  const TokenStreams streams = stack_.masked({.context = x.size(1), .segments = segments_of(batch)}, x, plan);
  return stack_(x, streams, queries, rates, plan, recomputation(positions, rates), main_gradients());
}

AlgorithmDistillation::Loss AnySpaceAd::loss_of(const at::Tensor& x, const Batch& rows,
                                                LossPositions positions) const {
  const int64_t length = rows.actions.size(1), queries = x.size(1);
  const ActionHead& head = head_of(rows);
  if (plan(positions).fused_loss())
    return fused_loss(head.hidden(x), head.choices(rows.actions), head.output());
  at::Tensor counts;
  if (rows.packed()) counts = at::arange(length, rows.filled.options()).lt(rows.filled.unsqueeze(1));
  return head.loss(head(x), rows.actions.narrow(1, length - queries, queries), options().label_smoothing,
                   counts);
}

AlgorithmDistillation::Loss AnySpaceAd::loss(const Batch& batch, LossPositions positions, bool training) {
  if (training) report_absent_groups(batch);
  const at::Tensor x = queries_of(batch, positions, training);
  if (batch.parts.empty()) return loss_of(x, batch, positions);
  Loss all;
  int64_t row = 0;
  for (const Batch& part : batch.parts) {
    const Loss of_part = loss_of(x.narrow(0, row, part.size()), part, positions);
    row += part.size();
    all.sum = all.sum.defined() ? at::add(all.sum, of_part.sum) : of_part.sum;
    if (of_part.correct.defined())
      all.correct = all.correct.defined() ? at::add(all.correct, of_part.correct) : of_part.correct;
    all.targets += of_part.targets;
    if (of_part.counted.defined())
      all.counted = all.counted.defined() ? at::add(all.counted, of_part.counted) : of_part.counted;
  }
  // A share of all targets would be none of those that can be correct.
  const bool real_actions = std::ranges::any_of(
      shape().spaces, [](const TaskSpaces& spaces) { return spaces.action.kind == Space::Kind::kBox; });
  if (real_actions) all.correct = at::Tensor();
  return all;
}

void AnySpaceAd::report_absent_groups(const Batch& batch) {
  if (own_parameters_.empty() || main_gradients() == nullptr || !at::GradMode::is_enabled()) return;
  const std::vector<at::Tensor> leaves = parameters().leaves();
  for (size_t group = 0; group < own_parameters_.size(); ++group) {
    const auto is_of_group = [group](const Batch& rows) { return static_cast<size_t>(rows.group) == group; };
    if (batch.parts.empty() ? is_of_group(batch) : std::ranges::any_of(batch.parts, is_of_group)) continue;
    for (const size_t place : own_parameters_[group]) {
      if (leaves[place].requires_grad()) main_gradients()->added(leaves[place]);
    }
  }
}

AlgorithmDistillation::Predictions AnySpaceAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  if (!batch.parts.empty())
    throw std::invalid_argument("Predictions of several groups have several shapes: ask for each part.");
  return {head_of(batch)(queries_of(batch, positions, training)), {}};
}

std::optional<AlgorithmDistillation::Parts> AnySpaceAd::parts() {
  const auto embeddings = [this](const Batch& rows) {
    const kernels::KernelPlan& chosen = plan(LossPositions::kLast);
    const at::Tensor x = tokens_(rows, {chosen, /*main_gradients=*/nullptr});
    const TokenStreams streams = stack_.masked({.context = x.size(1)}, x, chosen);
    return Tokens{stack_.before_blocks(x, streams), streams, /*queries=*/1, rows.group};
  };
  const auto through = [this](const Tokens& tokens, int64_t first, int64_t end) {
    return stack_.through_blocks(tokens.x, tokens.streams, tokens.queries, first, end,
                                 plan(LossPositions::kLast));
  };
  const auto head = [this](const Tokens& tokens) {
    return at_the_query({heads_.at(static_cast<size_t>(tokens.group))(stack_.behind_blocks(tokens.x)), {}});
  };
  return with_rolling({stack_.blocks(), embeddings, through, head}, newest_step());
}

NewestStep AnySpaceAd::newest_step() const {
  const auto chosen = [this]() -> const kernels::KernelPlan& { return plan(LossPositions::kLast); };
  const auto tokens = [this, chosen](const Batch& rows) {
    return Tokens{tokens_(rows, {chosen(), /*main_gradients=*/nullptr}), {}, /*queries=*/1, rows.group};
  };
  return stack_.newest_step(options().n_transit, /*passing=*/0, tokens, chosen);
}

}  // namespace adtrain
