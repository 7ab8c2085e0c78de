#include "model/spaces/AnySpaceAd.h"

#include <memory>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "model/spaces/SpaceFit.h"

namespace adtrain {

std::unique_ptr<AnySpaceAd> AnySpaceAd::create(const ModelOptions& options, const ModelShape& shape,
                                               ParameterFactory factory) {
  Findings findings;
  options.check_own_tasks(findings);
  if (findings.empty()) check_spaces(options, *shape.spaces, findings);
  std::string errors;
  for (const auto& [key, message] : findings.all())
    errors += fmt::format("{}{}: {}", errors.empty() ? "" : "\n", key, message);
  if (!errors.empty()) throw ConfigError(errors);
  return std::make_unique<AnySpaceAd>(options.of_own_tasks(), shape, std::move(factory));
}

AnySpaceAd::AnySpaceAd(const ModelOptions& options, const ModelShape& shape, ParameterFactory factory)
    : AlgorithmDistillation(options, shape),
      tokens_(factory, options, *shape.spaces, Initialisation(options)),
      stack_(factory, options, Initialisation(options)),
      head_(factory, options, *shape.spaces, Initialisation(options)) {
  adopt(factory.take());
}

AlgorithmDistillation::Loss AnySpaceAd::loss(const Batch& batch, LossPositions positions, bool training) {
  const at::Tensor found = forward(batch, positions, training).actions;
  const int64_t length = batch.actions.size(1), queries = found.size(1);
  return head_.loss(found, batch.actions.narrow(1, length - queries, queries), options().label_smoothing);
}

AlgorithmDistillation::Predictions AnySpaceAd::forward(const Batch& batch, LossPositions positions,
                                                       bool training) {
  const at::Tensor x = tokens_(batch);
  const int64_t queries = positions == LossPositions::kAll ? x.size(1) : 1;
  return {head_(stack_(x, stack_.one_stream(x), queries, dropout_rates(training))), {}};
}

AlgorithmDistillation::Rolling AnySpaceAd::rolling() {
  if (!stack_.can_roll()) return nullptr;
  auto kept = std::make_shared<RollingBlocks>(stack_.rolling(options().n_transit));
  return [this, kept](const Batch& step) -> Predictions {
    const at::NoGradGuard no_grad;
    return {head_(stack_.newest(tokens_(step), *kept)).squeeze(1).to(at::kFloat), {}};
  };
}

std::string AnySpaceAd::why_not_rolling() const {
  return stack_.can_roll() ? "" : "learned positions are counted from a window's first step";
}

}  // namespace adtrain
