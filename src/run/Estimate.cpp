#include "run/Estimate.h"

#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Gpu.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "memory/AutoBatchSize.h"
#include "memory/MemoryMeter.h"
#include "run/MemoryEstimate.h"
#include "run/RunConfig.h"
#include "run/ScoringMemoryTable.h"
#include "run/SpreadNetwork.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

using nlohmann::ordered_json;

struct NamedPrecision {
  const char* name;
  Precision precision;
};
constexpr NamedPrecision kPrecisions[] = {
    {"fp32", Precision::kFloat32}, {"fp16", Precision::kFloat16}, {"bf16", Precision::kBFloat16}};

kernels::DeviceTraits gpu_of_estimate() {
  return visible_gpu_count() > 0 ? kernels::DeviceTraits::of(at::Device(at::kCUDA, 0))
                                 : kernels::DeviceTraits::hopper();
}

/// The three figures that are shown, and how: for each precision of this network.
class Report {
 public:
  Report(const EstimateRequest& request, const RunConfig& config) : request_(request), config_(config) {}

  ordered_json json() const {
    const MemoryEstimate estimate = of(config_.training.mixed_precision, request_.gpus.front());
    const int64_t batch = estimate.configured_batch().value_or(1);
    ordered_json result = {{"parameters", estimate.parameter_count()},
                           {"trained_parameters", estimate.trained_count()},
                           {"train_batch_size", batch},
                           {"gpus", request_.gpus.front()},
                           {"bytes", to_json(estimate.split(batch))},
                           {"total_bytes", estimate.split(batch).total()}};
    for (const auto& [name, precision] : kPrecisions) {
      ordered_json& totals = result["total_bytes_by_precision_and_gpus"][name];
      for (const int64_t gpus : request_.gpus) {
        const std::optional<int64_t> total = total_of(precision, gpus);
        totals[std::to_string(gpus)] = total ? ordered_json(*total) : ordered_json(nullptr);
      }
      ordered_json& largest = result["largest_batch_by_precision_and_gigabytes"][name];
      for (const double memory : request_.memory_gb) {
        largest[fmt::format("{:g}", memory)] = largest_batch(precision, memory);
      }
    }
    const std::vector<std::string> map = planned_map(config_);
    if (!map.empty()) result["device_map"] = map;
    if (config_.quantisation.is_on()) result["notice"] = quantised_text();
    return result;
  }

  std::string text() const {
    const MemoryEstimate estimate = of(config_.training.mixed_precision, request_.gpus.front());
    const std::optional<int64_t> configured = estimate.configured_batch();
    const int64_t batch = configured.value_or(1);
    const MemorySplit split = estimate.split(batch);
    const bool all = estimate.trained_count() == estimate.parameter_count();
    std::string text =
        fmt::format("{} parameters{}; transformer blocks: {}\n\n", grouped(estimate.parameter_count()),
                    all ? "" : fmt::format(", {} of them train", grouped(estimate.trained_count())),
                    estimate.plan().summary());
    if (!configured) {
      text += fmt::format("global_batch_size does not divide over {} GPUs; one sequence is shown instead\n",
                          request_.gpus.front());
    }
    text += fmt::format("memory of each of {} GPU{}, {} sequence{} a micro-batch, {}:\n",
                        request_.gpus.front(), request_.gpus.front() == 1 ? "" : "s", batch,
                        batch == 1 ? "" : "s", name_of(config_.training.mixed_precision));
    for (const auto& [name, bytes] : kMemoryParts) {
      text += fmt::format("  {:<14}{:>9.2f} GB\n", name, in_gigabytes(split.*bytes));
    }
    text += fmt::format("  {:<14}{:>9.2f} GB\n", "total", in_gigabytes(split.total()));
    text += shard_text();
    if (const int64_t held_out = estimate.held_out_bytes(batch); held_out > split.total() / 10) {
      text += fmt::format(
          "  {} of the activations are the held-out loss's: a lower test_batch_size ({}) takes less\n",
          gigabytes(held_out), config_.training.test_batch_size);
    }
    text += "\n";
    text += "total of each GPU by precision and number of GPUs, GB:\n" + heading(request_.gpus, "");
    for (const auto& [name, precision] : kPrecisions) {
      text += fmt::format("  {:<6}", name);
      for (const int64_t gpus : request_.gpus) {
        const std::optional<int64_t> total = total_of(precision, gpus);
        text += total ? fmt::format("{:>10.2f}", in_gigabytes(*total)) : fmt::format("{:>10}", "-");
      }
      text += "\n";
    }
    text += fmt::format(
        "\nlargest train_batch_size that takes at most {:g}% (batch_size_safety_margin) of a GPU of so many "
        "GB:\n",
        100 * config_.training.batch_size_safety_margin);
    text += heading(request_.memory_gb, " GB");
    for (const auto& [name, precision] : kPrecisions) {
      text += fmt::format("  {:<6}", name);
      for (const double memory : request_.memory_gb) {
        const int64_t largest = largest_batch(precision, memory);
        text += largest > 0 ? fmt::format("{:>10}", largest) : fmt::format("{:>10}", "none");
      }
      text += "\n";
    }
    const std::vector<std::string> map = planned_map(config_);
    if (!map.empty()) text += "\nscoring and evaluation: " + join(map, "\n") + "\n";
    if (config_.quantisation.is_on()) text += "\n" + quantised_text() + "\n";
    text +=
        "\nThese are sums, not measurements: adtrain find-batch-size measures on the GPUs; and the metrics "
        "of a run hold the same parts as they are (memory_parts).\n";
    return text;
  }

 private:
  std::string quantised_text() const {
    return fmt::format(
        "{} is for scoring and evaluation, of which --table says what they take; training has weights as "
        "they are, and so have its sums above",
        config_.quantisation.key());
  }
  std::string shard_text() const {
    if (!config_.distributed.shard_optimizer) return "";
    const int64_t gpus = request_.gpus.front();
    return gpus == 1 ? "  shard_optimizer: one GPU has nothing to shard, all moments are on it\n"
                     : fmt::format("  shard_optimizer: the moments are divided among {} GPUs\n", gpus);
  }
  template <class Value>
  static std::string heading(const std::vector<Value>& columns, const char* unit) {
    std::string line = "        ";
    for (const Value& column : columns)
      line += fmt::format("{:>10}", fmt::format("{:g}{}", static_cast<double>(column), unit));
    return line + "\n";
  }
  static const char* name_of(Precision wanted) {
    for (const auto& [name, precision] : kPrecisions) {
      if (precision == wanted) return name;
    }
    return "";
  }
  MemoryEstimate of(Precision precision, int64_t gpus) const {
    RunConfig config = config_;
    config.training.mixed_precision = precision;
    return {config, gpu_of_estimate(), gpus};
  }
  std::optional<int64_t> total_of(Precision precision, int64_t gpus) const {
    const MemoryEstimate estimate = of(precision, gpus);
    const std::optional<int64_t> batch = estimate.configured_batch();
    return batch ? std::optional(estimate.split(*batch).total()) : std::nullopt;
  }
  int64_t largest_batch(Precision precision, double memory_gb) const {
    const double usable = memory_gb * kBytesOfGigabyte * config_.training.batch_size_safety_margin;
    return of(precision, request_.gpus.front()).largest_batch(static_cast<int64_t>(usable));
  }

  const EstimateRequest& request_;
  const RunConfig& config_;
};

/// Standard output is left to the answer.
void show(const std::vector<std::string>& notices) {
  Console console = Console::for_process(/*enabled=*/true, stderr);
  for (const std::string& notice : notices) console.notice(notice);
}

}  // namespace

ExitCode estimate(const EstimateRequest& request) {
  std::vector<std::string> notices;
  if (request.table) {
    std::vector<RunConfig> configs;
    for (const auto& file : request.configs)
      configs.push_back(RunConfig::load(file, request.overrides, notices));
    // The table has quantised weights whether or not the configurations ask for them.
    std::erase_if(notices, [](const std::string& notice) {
      return notice.starts_with("llm_int8_skip_modules has no effect");
    });
    show(notices);
    print_answer(request.json ? scoring_memory_json(configs, request.gpus).dump(2) + "\n"
                              : scoring_memory_table(configs, request.gpus));
    return ExitCode::kDone;
  }
  if (request.configs.size() > 1) {
    throw ConfigError(
        fmt::format("found {} configurations; expected one, or --table", request.configs.size()));
  }
  const RunConfig config = RunConfig::load(request.configs.front(), request.overrides, notices);
  if (config.model.is_plugin()) {
    throw ConfigError(
        "model: found a plug-in's network, of which nobody knows what it takes; expected one of adtrain's "
        "own: adtrain find-batch-size measures any");
  }
  show(notices);
  const Report report(request, config);
  print_answer(request.json ? report.json().dump(2) + "\n" : report.text());
  return ExitCode::kDone;
}

}  // namespace adtrain
