#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include "adtrain/optimizer.h"
#include "base/FlatLayout.h"
#include "training/Optimizer.h"

namespace adtrain {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

const AdamWOptions& checked(const AdamWOptions& options, double max_grad_norm) {
  const auto check = [](const char* name, double value, bool good, const char* range) {
    if (good) return;
    throw std::invalid_argument(fmt::format("{} is {}; expected {}.", name, value, range));
  };
  const auto [beta1, beta2] = options.betas();
  check("The learning rate", options.lr(), options.lr() >= 0, "0 or more");
  check("eps", options.eps(), options.eps() >= 0, "0 or more");
  check("The first of betas", beta1, beta1 >= 0 && beta1 < 1, "a number from 0 to below 1");
  check("The second of betas", beta2, beta2 >= 0 && beta2 < 1, "a number from 0 to below 1");
  check("weight_decay", options.weight_decay(), options.weight_decay() >= 0, "0 or more");
  check("max_grad_norm", max_grad_norm, max_grad_norm >= 0, "0 or more");
  if (options.amsgrad())
    throw std::invalid_argument("amsgrad is on; FlatAdamW has no such rule: leave it out.");
  return options;
}

TrainingOptions rule_of(const AdamWOptions& options, double max_grad_norm) {
  TrainingOptions rule;
  std::tie(rule.beta1, rule.beta2) = options.betas();
  rule.adam_epsilon = options.eps();
  rule.weight_decay = options.weight_decay();
  rule.max_grad_norm = max_grad_norm;
  return rule;
}

}  // namespace

class FlatAdamW::Update {
 public:
  Update(DataParallel& parallel, const AdamWOptions& options, double max_grad_norm)
      : parallel_(parallel),
        layout_(FlatLayout::of(parameters())),
        flat_(flattened()),
        optimizer_(flat_, rule_of(options, max_grad_norm)) {
    set_learning_rate(options.lr());
  }

  void step(const AdamWOptions& options) {
    if (options.lr() != learning_rate_) set_learning_rate(options.lr());
    optimizer_.step(parallel_.flat_gradient());
    parallel_.update_parameters();
  }

  void set_learning_rate(double rate) {
    optimizer_.set_learning_rate(rate);
    learning_rate_ = rate;
  }

  const at::Tensor& gradient_norm() const { return optimizer_.gradient_norm(); }
  const std::vector<at::Tensor>& parameters() const { return parallel_.main_parameters(); }

  /// An AdamW of libtorch's with the same state: its moments are copies.
  torch::optim::AdamW as_libtorchs(const AdamWOptions& options) {
    torch::optim::AdamW twin(parameters(), options);
    const int64_t steps = optimizer_.step_count().item<int64_t>();
    for (size_t index = 0; steps > 0 && index < parameters().size(); ++index) {
      auto state = std::make_unique<AdamWParamState>();
      state->step(steps);
      state->exp_avg(part_of(optimizer_.first_moment(), index).clone());
      state->exp_avg_sq(part_of(optimizer_.second_moment(), index).clone());
      twin.state()[parameters()[index].unsafeGetTensorImpl()] = std::move(state);
    }
    return twin;
  }

  void take_from(torch::optim::AdamW& twin) {
    const int64_t steps = checked_steps(twin);
    optimizer_.step_count().fill_(steps);
    for (size_t index = 0; index < parameters().size(); ++index) {
      const AdamWParamState* state = state_of(twin, index);
      take(part_of(optimizer_.first_moment(), index), state == nullptr ? at::Tensor() : state->exp_avg());
      take(part_of(optimizer_.second_moment(), index), state == nullptr ? at::Tensor() : state->exp_avg_sq());
    }
  }

 private:
  at::Tensor flattened() {
    const at::AutoGradMode no_gradients(false);
    at::Tensor flat = at::zeros({layout_.total()}, parameters().front().options().requires_grad(false));
    for (size_t index = 0; index < parameters().size(); ++index) {
      at::Tensor parameter = parameters()[index];
      const at::Tensor view = part_of(flat, index);
      view.copy_(parameter);
      parameter.set_data(view);
    }
    return flat;
  }

  at::Tensor part_of(const at::Tensor& flat, size_t index) const {
    const at::Tensor& parameter = parameters()[index];
    return flat.narrow(0, layout_.offset(index), parameter.numel()).view(parameter.sizes());
  }

  /// Null where it has none, as no step was taken.
  const AdamWParamState* state_of(torch::optim::AdamW& twin, size_t index) const {
    const auto found = twin.state().find(parameters()[index].unsafeGetTensorImpl());
    return found == twin.state().end() ? nullptr : static_cast<const AdamWParamState*>(found->second.get());
  }

  int64_t checked_steps(torch::optim::AdamW& twin) const {
    const auto steps_of = [](const AdamWParamState* state) { return state == nullptr ? 0 : state->step(); };
    const int64_t steps = steps_of(state_of(twin, 0));
    for (size_t index = 0; index < parameters().size(); ++index) {
      const AdamWParamState* state = state_of(twin, index);
      TORCH_CHECK(steps_of(state) == steps, "parameter ", index, " was updated ", steps_of(state),
                  " times and parameter 0 ", steps, " times; FlatAdamW updates all of them together");
      TORCH_CHECK(state == nullptr || state->exp_avg().sizes() == parameters()[index].sizes(), "parameter ",
                  index, " is of shape ", parameters()[index].sizes(), ", its moments are of another");
    }
    return steps;
  }

  static void take(const at::Tensor& part, const at::Tensor& saved) {
    if (saved.defined()) {
      part.copy_(saved);
    } else {
      part.zero_();
    }
  }

  DataParallel& parallel_;
  FlatLayout layout_;
  at::Tensor flat_;  ///< the main parameters
  adtrain::Optimizer optimizer_;
  double learning_rate_ = 0;  ///< the value on the device
};

FlatAdamW::FlatAdamW(DataParallel& parallel, AdamWOptions options, double max_grad_norm)
    : torch::optim::Optimizer(parallel.main_parameters(),
                              std::make_unique<AdamWOptions>(checked(options, max_grad_norm))),
      update_(std::make_unique<Update>(parallel, options, max_grad_norm)) {}

FlatAdamW::~FlatAdamW() = default;

at::Tensor FlatAdamW::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  if (param_groups_.size() != 1 || param_groups_[0].params().size() != update_->parameters().size()) {
    throw std::logic_error(
        "FlatAdamW was given further parameters; expected those of its DataParallel alone: give others to an "
        "optimizer of their own.");
  }
  update_->step(static_cast<const AdamWOptions&>(param_groups_[0].options()));
  return loss;
}

void FlatAdamW::set_learning_rate(double rate) {
  param_groups_[0].options().set_lr(rate);
  update_->set_learning_rate(rate);
}

const at::Tensor& FlatAdamW::gradient_norm() const {
  return update_->gradient_norm();
}

void FlatAdamW::save(torch::serialize::OutputArchive& archive) const {
  update_->as_libtorchs(static_cast<const AdamWOptions&>(param_groups_[0].options())).save(archive);
}

void FlatAdamW::load(torch::serialize::InputArchive& archive) {
  torch::optim::AdamW twin(update_->parameters(), AdamWOptions());
  twin.load(archive);
  update_->take_from(twin);
  set_learning_rate(twin.param_groups()[0].options().get_lr());
}

}  // namespace adtrain
