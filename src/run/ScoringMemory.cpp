#include "run/ScoringMemory.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/Error.h"
#include "model/ActivationEstimate.h"
#include "model/AlgorithmDistillation.h"
#include "model/NetworkPlan.h"
#include "model/ParameterNames.h"

namespace adtrain {
namespace {

int64_t parts_of(int64_t elements, int64_t size) {
  return (elements + size - 1) / size;
}

at::ScalarType computed_in(WeightFormat format) {
  return format == WeightFormat::kFloat32 ? at::kFloat : at::kBFloat16;
}

}  // namespace

ContextMemory context_memory(const RunConfig& config, const kernels::DeviceTraits& device,
                             at::ScalarType type, int64_t rows) {
  const ModelShape shape = config.model_shape();
  const kernels::KernelPlan plan = plan_of(config.model, shape, LossPositions::kLast, device, type);
  const int64_t waiting =
      rows * config.model.n_transit * config.model.tf_n_embd * static_cast<int64_t>(c10::elementSize(type));
  return {.of_gpu = inference_bytes(config.model, shape, plan, type, rows) + 2 * waiting};
}

int64_t bytes_in(WeightFormat format, const std::string& name, const std::vector<int64_t>& shape) {
  constexpr int64_t kFloat = 4, kHalf = 2, kBlock = 64, kNestedBlock = 256;
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (format == WeightFormat::kFloat32) return kFloat * elements;
  const bool is_quantised = format != WeightFormat::kSixteenBits && shape.size() == 2 && block_number(name);
  if (!is_quantised) return kHalf * elements;
  if (format == WeightFormat::kInt8) return elements + kFloat * shape.front();
  const int64_t codes = parts_of(elements, 2), scales = parts_of(elements, kBlock);
  if (format == WeightFormat::kFourBits) return codes + kFloat * scales;
  return codes + scales + kFloat * parts_of(scales, kNestedBlock);
}

ScoringMemory::ScoringMemory(const RunConfig& config) : config_(config) {
  if (config.model.is_plugin()) {
    throw ConfigError(
        "model: found a plug-in's network, of which nobody knows what it takes; expected one of adtrain's "
        "own");
  }
  const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
  for (const NamedTensor& parameter : model->parameters().named()) {
    shapes_.emplace_back(parameter.name, parameter.tensor.sizes().vec());
    parameters_ += parameter.tensor.numel();
  }
  in_parts_ = model->parts().has_value();
}

std::vector<PlacedModule> ScoringMemory::modules(WeightFormat format) const {
  std::vector<SizedParameter> sized;
  for (const auto& [name, shape] : shapes_) sized.push_back({name, bytes_in(format, name, shape)});
  return placed_modules(sized);
}

int64_t ScoringMemory::weight_bytes(WeightFormat format) const {
  return total_bytes(modules(format));
}

std::optional<int64_t> ScoringMemory::fullest_gpu_bytes(WeightFormat format, int64_t gpus,
                                                        int64_t rows) const {
  const at::ScalarType type = computed_in(format);
  const auto device = kernels::DeviceTraits::hopper();
  if (gpus == 1) {
    const auto plan = plan_of(config_.model, config_.model_shape(), LossPositions::kLast, device, type);
    const int64_t rounded_from =
        format == WeightFormat::kSixteenBits ? weight_bytes(WeightFormat::kFloat32) : 0;
    return rounded_from + weight_bytes(format) +
           inference_bytes(config_.model, config_.model_shape(), plan, type, rows);
  }
  if (!in_parts_) return std::nullopt;
  constexpr int64_t kNoLimit = int64_t{1} << 50;
  MemoryLimits limits;
  limits.from_user = true;
  for (int gpu = 0; gpu < gpus; ++gpu) limits.gpus[gpu] = kNoLimit;
  const ContextMemory context = context_memory(config_, device, type, rows);
  const DeviceMap map = DeviceMap::automatic(modules(format), limits, MapMode::kBalanced, context);
  std::vector<int64_t> bytes(static_cast<size_t>(gpus), context.of_gpu);
  for (const DeviceMap::Row& row : map.rows()) bytes.at(static_cast<size_t>(row.device.gpu)) += row.bytes;
  return std::ranges::max(bytes);
}

}  // namespace adtrain
