#include "model/PluginAd.h"

#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "adtrain/network.h"
#include "base/Error.h"
#include "model/PluginNetworks.h"

namespace adtrain {
namespace {

const PluginNetwork& plugin_of(const ModelOptions& options) {
  const auto index = static_cast<size_t>(options.model) - static_cast<size_t>(ModelKind::kPlugin);
  return PluginNetworks::all().at(index);
}

void seed_generator(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

std::string name_of(const PluginNetwork& plugin) {
  return fmt::format("The network '{}' of {}", plugin.name, plugin.origin);
}

std::shared_ptr<Network> made(const ModelOptions& options, const ModelShape& shape, uint64_t seed) {
  const PluginNetwork& plugin = plugin_of(options);
  seed_generator(seed);
  std::shared_ptr<Network> network = plugin.make({.grid_size = shape.grid_size,
                                                  .num_actions = shape.num_actions,
                                                  .n_transit = options.n_transit,
                                                  .tf_n_embd = options.tf_n_embd,
                                                  .tf_n_layer = options.tf_n_layer,
                                                  .tf_n_head = options.tf_n_head,
                                                  .tf_n_inner = options.tf_n_inner,
                                                  .tf_dropout = options.tf_dropout,
                                                  .tf_attn_dropout = options.tf_attn_dropout});
  if (network != nullptr) return network;
  throw ConfigError(fmt::format("{} was not made; expected its factory to return one", name_of(plugin)));
}

std::vector<NamedTensor> parameters_of(Network& network, const PluginNetwork& plugin) {
  std::vector<NamedTensor> parameters;
  for (const auto& named : network.named_parameters()) {
    const at::Tensor& tensor = named.value();
    if (tensor.scalar_type() != at::kFloat || !tensor.is_cpu() || !tensor.requires_grad()) {
      throw ConfigError(fmt::format(
          "{} has the parameter {} of {} on {}{}; expected float32 on the CPU that requires gradients: "
          "register what is constant as a buffer",
          name_of(plugin), named.key(), c10::toString(tensor.scalar_type()), tensor.device().str(),
          tensor.requires_grad() ? "" : " without gradients"));
    }
    parameters.push_back({named.key(), tensor});
  }
  if (!parameters.empty()) return parameters;
  throw ConfigError(
      fmt::format("{} has no parameters; expected some: see register_parameter and "
                  "register_module of torch::nn::Module",
                  name_of(plugin)));
}

}  // namespace

PluginAd::PluginAd(const ModelOptions& options, const ModelShape& shape, uint64_t seed)
    : AlgorithmDistillation(options, shape), network_(made(options, shape, seed)) {
  adopt(parameters_of(*network_, plugin_of(options)));
}

AlgorithmDistillation::Predictions PluginAd::forward(const Batch& batch, LossPositions positions,
                                                     bool training) {
  if (network_->is_training() != training) network_->train(training);
  move_buffers();
  const int64_t states = batch.states.size(1), context = states - 1;
  const bool every_state = positions == LossPositions::kAll;
  const at::Tensor logits = network_->forward({.states = batch.states,
                                               .actions = batch.actions.narrow(1, 0, context),
                                               .rewards = batch.rewards.narrow(1, 0, context),
                                               .next_states = batch.next_states.narrow(1, 0, context),
                                               .every_state = every_state});
  check(logits, {batch.size(), every_state ? states : 1, shape().num_actions});
  return {logits, {}};
}

void PluginAd::move_buffers() const {
  for (at::Tensor& buffer : network_->buffers()) {
    if (buffer.device() != device()) buffer.set_data(buffer.to(device()));
  }
}

void PluginAd::check(const at::Tensor& logits, at::IntArrayRef expected) const {
  if (logits.defined() && logits.is_floating_point() && logits.sizes() == expected) return;
  throw ConfigError(fmt::format(
      "{} returned {}; expected logits of a floating-point type and shape ({}): windows, states that are "
      "asked about, actions",
      name_of(plugin_of(options())),
      logits.defined()
          ? fmt::format("{} ({})", c10::toString(logits.scalar_type()), fmt::join(logits.sizes(), ", "))
          : "nothing",
      fmt::join(expected, ", ")));
}

}  // namespace adtrain
