#include "run/ScoringMemory.h"

#include <algorithm>
#include <optional>

#include "base/Error.h"
#include "kernels/quantised/OutlierProduct.h"
#include "model/ActivationEstimate.h"
#include "model/NetworkPlan.h"
#include "model/QuantisedLinear.h"
#include "model/QuantisedNetwork.h"
#include "placement/PlacedNetwork.h"
#include "run/LoadedNetwork.h"

namespace adtrain {
namespace {

at::ScalarType computed_in(WeightFormat format) {
  return format == WeightFormat::kFloat32 ? at::kFloat : at::kBFloat16;
}

/// Nothing where weights are as they are.
std::optional<WeightQuantisation> quantisation_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
    case WeightFormat::kSixteenBits:
      return std::nullopt;
    case WeightFormat::kInt8:
      return WeightQuantisation{.code = QuantisedCode::int8};
    case WeightFormat::kFourBits:
    case WeightFormat::kFourBitsDouble:
      return WeightQuantisation{.code = QuantisedCode::nf4,
                                .double_quantisation = format == WeightFormat::kFourBitsDouble};
  }
  return std::nullopt;
}

/// Of NormProducts: what stays of them, and the weights in fp32 with a mask that the largest is computed
/// from. What else it takes are weights of the network's type, which are counted already.
int64_t norm_product_bytes(const ModelOptions& options) {
  constexpr int64_t kFloat = 4, kMask = 1, kRows = 2;
  const int64_t projected = 3 * options.tf_n_embd, inner = options.inner_width();
  return kRows * kFloat * options.tf_n_layer * (projected + inner) +
         (kFloat + kMask) * options.tf_n_embd * std::max(projected, inner);
}

/// Of LLM.int8's products with outliers, where the configuration asks for them: they work on copies of some
/// rows at a time.
int64_t outlier_bytes(const RunConfig& config, const kernels::DeviceTraits& device, at::ScalarType type,
                      int64_t rows) {
  const auto weights = config.quantisation.weights();
  if (!weights || weights->outlier_threshold == 0) return 0;
  const int64_t width = config.model.tf_n_embd, inner = config.model.inner_width();
  const auto of_layer = [&](int64_t in_features, int64_t out_features) {
    return kernels::outlier_product_bytes(device, type, rows, in_features, out_features);
  };
  return std::max({of_layer(width, 3 * width), of_layer(width, inner), of_layer(inner, width)});
}

}  // namespace

ContextMemory context_memory(const RunConfig& config, const kernels::DeviceTraits& device,
                             at::ScalarType type, bool quantised, int64_t rows) {
  const ModelShape shape = config.model_shape();
  const kernels::KernelPlan plan =
      plan_of(config.model, shape, LossPositions::kLast, device, type, quantised);
  const int64_t tokens = config.model.longest_context();
  const int64_t waiting =
      rows * tokens * config.model.tf_n_embd * static_cast<int64_t>(c10::elementSize(type));
  // Rows with padding have a mask each, in two forms.
  const int64_t masks = config.model.compressed() && plan.reads_masks()
                            ? 2 * rows * tokens * tokens * static_cast<int64_t>(c10::elementSize(type))
                            : 0;
  return {.of_gpu = inference_bytes(config.model, shape, plan, type, rows) + 2 * waiting + masks +
                    (quantised ? outlier_bytes(config, device, type, rows * tokens) : 0)};
}

ContextMemory growing_context_memory(const RunConfig& config, AlgorithmDistillation& model,
                                     const kernels::DeviceTraits& device, int64_t rows) {
  const at::ScalarType type = model.parameters().compute_type();
  const bool quantised = model.parameters().is_quantised();
  RunConfig of_step = config;
  of_step.model.n_transit = std::min<int64_t>(config.model.n_transit, 2);  // the step before, and the query
  ContextMemory context = context_memory(of_step, device, type, quantised, rows);
  const kernels::KernelPlan plan =
      plan_of(config.model, config.model_shape(), LossPositions::kLast, device, type, quantised);
  // libtorch's attention may copy what it reads, and has scores of each key.
  if (!plan.decoding_attention()) {
    constexpr int64_t kFloat = 4;
    context.of_gpu += kept_bytes_of_block(model, rows) +
                      2 * kFloat * rows * config.model.tf_n_head * model.parts().value().window;
  }
  if (quantised && plan.decoding_attention() && plan.by_sublayers())
    context.of_gpu += norm_product_bytes(config.model);
  if (!model.rolling_slides())
    context.of_gpu = std::max(context.of_gpu, context_memory(config, device, type, quantised, rows).of_gpu);
  return context;
}

int64_t kept_bytes_of_block(AlgorithmDistillation& model, int64_t rows) {
  constexpr int64_t kFloat = 4;
  const int64_t element = static_cast<int64_t>(c10::elementSize(model.parameters().compute_type()));
  const ModelOptions& options = model.options();
  return rows * (2 * model.parts().value().window * options.tf_n_embd * element + kFloat * options.tf_n_head);
}

ScoringMemory::ScoringMemory(const RunConfig& config) : config_(config) {
  if (config.model.is_plugin()) {
    throw ConfigError(
        "model: found a plug-in's network, of which nobody knows what it takes; expected one of adtrain's "
        "own");
  }
  model_ = AlgorithmDistillation::without_values(config.model, config.model_shape());
}

int64_t ScoringMemory::parameter_count() const {
  int64_t count = 0;
  for (const auto& [name, leaf] : model_->parameters().named_leaves()) count += leaf.numel();
  return count;
}

std::vector<PlacedModule> ScoringMemory::modules(WeightFormat format) const {
  const at::ScalarType type = computed_in(format);
  const auto how = quantisation_of(format);
  if (!how) return modules_of(*model_, type);
  const auto names = quantised_names(config_, model_->parameters());
  return modules_of(*model_, QuantisedSize::of(model_->parameters(), names, *how, type).parameters);
}

int64_t ScoringMemory::weight_bytes(WeightFormat format) const {
  return total_bytes(modules(format));
}

int64_t ScoringMemory::fullest_gpu_bytes(WeightFormat format, int64_t gpus, int64_t rows) const {
  const at::ScalarType type = computed_in(format);
  const auto device = kernels::DeviceTraits::hopper();
  const bool quantised = quantisation_of(format).has_value();
  if (gpus == 1) {
    const auto plan =
        plan_of(config_.model, config_.model_shape(), LossPositions::kLast, device, type, quantised);
    return weight_bytes(format) + inference_bytes(config_.model, config_.model_shape(), plan, type, rows);
  }
  constexpr int64_t kNoLimit = int64_t{1} << 50;
  MemoryLimits limits;
  limits.from_user = true;
  for (int gpu = 0; gpu < gpus; ++gpu) limits.gpus[gpu] = kNoLimit;
  RunConfig plain = config_;
  plain.quantisation = {};  // the format alone counts
  const ContextMemory context = context_memory(plain, device, type, quantised, rows);
  const DeviceMap map = DeviceMap::automatic(modules(format), limits, MapMode::kBalanced, context);
  std::vector<int64_t> bytes(static_cast<size_t>(gpus), context.of_gpu);
  for (const DeviceMap::Row& row : map.rows()) bytes.at(static_cast<size_t>(row.device.gpu)) += row.bytes;
  return std::ranges::max(bytes);
}

}  // namespace adtrain
