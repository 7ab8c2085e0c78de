#include "run/KernelReport.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Gpu.h"
#include "evaluation/gpu/PackedNetwork.h"
#include "kernels/quantised/OutlierProduct.h"
#include "model/AlgorithmDistillation.h"
#include "model/FrozenParameters.h"
#include "model/NetworkPlan.h"
#include "run/EvaluationWorkers.h"
#include "run/LoadedNetwork.h"
#include "run/SpreadNetwork.h"

namespace adtrain {
namespace {

using kernels::DeviceTraits;
using kernels::KernelPlan;

/// How keys and values are kept: nothing where they are not.
struct KeptKeys {
  std::string how;
  bool slides;
};

/// `alone`: whether one GPU has the whole network, which then keeps them of contexts that grow, too.
std::optional<KeptKeys> kept_keys(const RunConfig& config, const ModelShape& shape, bool alone) {
  const bool rolling = config.evaluation.eval_context == EvaluationContext::kRolling;
  if (config.model.is_plugin() || (!rolling && !alone)) return std::nullopt;
  const auto model = AlgorithmDistillation::without_values(config.model, shape);
  if (!model->why_not_rolling().empty()) return std::nullopt;
  if (rolling && model->rolling_slides()) return KeptKeys{"one token a step over kept keys and values", true};
  return KeptKeys{"over kept keys and values while contexts grow", false};
}

/// On a GPU, of networks that keep keys and values.
KernelPlan::Part rolling_part(const RunConfig& config, const DeviceTraits& device, at::ScalarType type,
                              const KernelPlan& plan, const std::string& how) {
  if (const auto& why = plan.why_no_decoding_attention())
    return {"rollout", how + ", by libtorch's operators", "our attention: " + *why};
  const bool captured = can_be_captured(config, device, type);
  const std::string why = config.training.cuda_graph == CudaGraphUse::kOff
                              ? "cuda_graph is off"
                              : "where LLM.int8's outliers lie the host must know in each step";
  return {"rollout", how + ", attention by one kernel of ours" + (captured ? ", in a CUDA graph" : ""),
          captured ? "" : why};
}

/// `evaluated`: of the type that evaluation computes in.
KernelPlan::Part rollout_part(const RunConfig& config, const ModelShape& shape, const DeviceTraits& device,
                              at::ScalarType type, const KernelPlan& evaluated) {
  const std::string stepwise = "environments on the CPU, the model step by step";
  if (config.evaluation.planning_horizon > 0) {
    const bool captured = device.is_gpu && can_be_captured(config, device, type);
    return {"rollout",
            stepwise + ", which plans by libtorch's operators" + (captured ? ", in a CUDA graph" : ""),
            device.is_gpu ? "ours takes no model that plans" : "ours is for GPUs"};
  }
  std::vector<std::string> said_elsewhere;
  const bool spread = !config.model.is_plugin() && SpreadNetwork::is_wanted(config, said_elsewhere);
  const std::optional<KeptKeys> kept = kept_keys(config, shape, device.is_gpu && !spread);
  const std::string how = kept ? stepwise + ", " + kept->how : stepwise;
  if (spread) return {"rollout", how + ", in the stages of device_map", "ours is for one GPU"};
  if (!device.is_gpu) return {"rollout", how, "ours is for GPUs"};
  if (kept && kept->slides) return rolling_part(config, device, type, evaluated, kept->how);
  auto objection = PackedNetwork::objection(config.model, shape);
  if (!objection && config.quantisation.is_on()) objection = "its weights are quantised";
  if (!objection && type != at::kFloat) objection = fmt::format("it computes in {}", precision_name(type));
  if (!objection) return {"rollout", "one kernel an episode, environments and model", ""};
  KernelPlan::Part part = {"rollout", how, *objection};
  if (kept) part.kernels = rolling_part(config, device, type, evaluated, how).kernels;
  return part;
}

/// What is left of the backward pass where parameters are frozen.
KernelPlan::Part backward_part(const RunConfig& config, const ModelShape& shape, const KernelPlan& plan) {
  const auto model = AlgorithmDistillation::without_values(config.model, shape);
  freeze(model->parameters(), *config.training.freeze, config.place_of("freeze"));
  const RemainingBackward remaining = remaining_backward(config.model, model->parameters());
  KernelPlan::Part part = {"backward", "from the loss to the first parameter that trains", ""};
  if (remaining.forward_only > 0)
    part.kernels +=
        fmt::format(", none of the first {} of {} blocks", remaining.forward_only, config.model.tf_n_layer);
  if (!remaining.partly.empty() && (plan.whole_blocks() || plan.by_sublayers())) {
    part.why = fmt::format(
        "ours sum the gradients of all of a block, of which those of what is frozen in block{} {} "
        "are dropped",
        remaining.partly.size() == 1 ? "" : "s", fmt::join(remaining.partly, ", "));
  }
  return part;
}

/// Of masks of attention weights that a library draws for all its sequences at once; nothing where masks
/// follow the rows of the global batch alone.
std::optional<KernelPlan::Part> dropout_part(const RunConfig& config, const KernelPlan& plan) {
  if (config.model.tf_attn_dropout == 0) return std::nullopt;
  const std::string of_attention = "masks by the row of the global batch, but those of attention weights by ";
  if (plan.cudnn_attention())
    return KernelPlan::Part{"dropout", of_attention + "cuDNN, by step and first row of the micro-batch", ""};
  if (plan.library_attention())
    return KernelPlan::Part{"dropout", of_attention + "libtorch, by step and rank", ""};
  return std::nullopt;
}

KernelReport report_for(const RunConfig& config, const std::string& name, const DeviceTraits& device) {
  const ModelShape shape = config.model_shape();
  const at::Device kind = device.is_gpu ? at::kCUDA : at::kCPU;
  const bool quantised = config.quantisation.is_on();  // then nothing trains
  const at::ScalarType type = quantised ? loaded_type(config, kind) : config.training.compute_type(kind);
  const KernelPlan plan =
      plan_of(config.model, shape, config.training.loss_positions, device, type, quantised);
  KernelReport report = {name, precision_name(type), plan.parts()};
  if (const auto weights = config.quantisation.weights(); weights && weights->outlier_threshold > 0) {
    const bool ours = kernels::has_outlier_kernels(device, type);
    const auto products = std::ranges::find(report.parts, "products", &KernelPlan::Part::name);
    if (products != report.parts.end()) {
      *products = {"products",
                   std::string("LLM.int8's of whole numbers, outliers apart, by ") +
                       (ours ? "kernels of ours" : "libtorch's operators"),
                   ours ? "" : "ours are for fp16 and bf16 on GPUs of compute capability 9.0 and later"};
    }
  }
  if (config.data.borrowed_episodes > 0 && config.training.loss_positions == LossPositions::kAll &&
      plan.fused_loss()) {
    const auto loss = std::ranges::find(report.parts, "loss", &KernelPlan::Part::name);
    *loss = {"loss", "libtorch's operators",
             "ours has all actions as targets, but those of borrowed episodes are none"};
  }
  if (config.training.freeze && !config.training.freeze->empty())
    report.parts.push_back(backward_part(config, shape, plan));
  const at::ScalarType evaluated = evaluated_type(config, device.is_gpu ? at::kCUDA : at::kCPU);
  if (auto dropout = dropout_part(config, plan)) report.parts.push_back(*std::move(dropout));
  report.parts.push_back(
      rollout_part(config, shape, device, evaluated,
                   plan_of(config.model, shape, LossPositions::kLast, device, evaluated, quantised)));
  return report;
}

}  // namespace

std::vector<KernelReport> kernel_reports(const RunConfig& config) {
  const bool on_cpu = config.run.device == DeviceChoice::kCpu;
  if (!on_cpu && visible_gpu_count() > 0) {
    return {report_for(config, visible_gpu(0).name, DeviceTraits::of(at::Device(at::kCUDA, 0)))};
  }
  std::vector<KernelReport> reports;
  if (config.run.device != DeviceChoice::kCuda) reports.push_back(report_for(config, "the CPU", {}));
  if (!on_cpu)
    reports.push_back(report_for(config, "an H100 or H200, none of which is here", DeviceTraits::hopper()));
  return reports;
}

nlohmann::json as_json(const std::vector<KernelReport>& reports) {
  nlohmann::json list = nlohmann::json::array();
  for (const KernelReport& report : reports) {
    nlohmann::json parts = nlohmann::json::array();
    for (const auto& [name, kernels, why] : report.parts) {
      parts.push_back({{"part", name}, {"kernels", kernels}, {"why_not_faster", why}});
    }
    list.push_back({{"device", report.device}, {"precision", report.precision}, {"parts", parts}});
  }
  return list;
}

std::string as_text(const std::vector<KernelReport>& reports, const std::string& begin) {
  std::string text;
  for (const KernelReport& report : reports) {
    text += fmt::format("{}kernels on {}, {}:\n", begin, report.device, report.precision);
    size_t width = 10;
    for (const KernelPlan::Part& part : report.parts) width = std::max(width, part.name.size());
    for (const auto& [name, kernels, why] : report.parts) {
      text += fmt::format("{}  {:<{}} {}{}\n", begin, name, width, kernels,
                          why.empty() ? "" : fmt::format(" ({})", why));
    }
  }
  return text;
}

}  // namespace adtrain
