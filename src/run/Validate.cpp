#include "run/Validate.h"

#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Gpu.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "config/Reference.h"
#include "data/WindowIndex.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "model/AlgorithmDistillation.h"
#include "model/FrozenParameters.h"
#include "run/InitialWeights.h"
#include "run/KernelReport.h"
#include "run/LoadedNetwork.h"
#include "run/MemoryEstimate.h"
#include "run/RunConfig.h"
#include "run/SpreadNetwork.h"
#include "run/own/OwnTasksReport.h"

namespace adtrain {
namespace {

/// A sentence where training cannot fit one GPU: the first that is here, else an H200. Empty where it fits.
std::string memory_warning(const RunConfig& config) {
  if (config.run.device == DeviceChoice::kCpu || config.model.is_plugin()) return "";
  if (config.quantisation.is_on()) return "";  // nothing trains
  const bool is_here = visible_gpu_count() > 0;
  constexpr int64_t kMemoryOfH200 = 141'000'000'000;
  const int64_t memory = is_here ? visible_gpu(0).memory_bytes : kMemoryOfH200;
  const auto traits =
      is_here ? kernels::DeviceTraits::of(at::Device(at::kCUDA, 0)) : kernels::DeviceTraits::hopper();
  // How many GPUs share the moments is not known here: as many as one host usually has.
  const int64_t gpus = config.distributed.shard_optimizer ? 8 : 1;
  const MemoryEstimate estimate(config, traits, gpus);
  // Of a global batch each GPU may have as little as one sequence, on many ranks or in many steps.
  const int64_t batch = config.training.global_batch_size ? 1 : estimate.configured_batch().value_or(1);
  const int64_t total = estimate.split(batch).total();
  if (total <= memory) return "";
  return fmt::format(
      "training does not fit {}{}, by arithmetic: with {} sequence{} a micro-batch it takes {} ({}), of {}; "
      "adtrain estimate shows what fits",
      is_here ? "this GPU" : "an H200",
      gpus > 1 ? fmt::format(", with the optimizer sharded over {} of them", gpus) : "", batch,
      batch == 1 ? "" : "s", gigabytes(total), text_of(estimate.split(batch)), gigabytes(memory));
}

std::string tasks_text(const RunConfig& config) {
  if (config.environment.has_own_tasks())
    return fmt::format("those of {}, whose histories are not collected yet", *config.worker.env_worker);
  const int64_t count = TaskFamily::of(config.environment).task_count();
  const TaskSplit split = TaskSplit::of(config.environment, count, config.tasks);
  return fmt::format("{} of {}'s {}, {} of them trained on and {} held out",
                     split.train.size() + split.test.size(), config.environment.family_name(), count,
                     split.train.size(), split.test.size());
}

/// What fine-tuning makes of a configuration: which parameters train, and which weights it begins with.
struct FineTuning {
  std::vector<std::string> lines;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();

  /// Throws as freeze() and InitialWeights do.
  static FineTuning of(const RunConfig& config) {
    FineTuning report;
    const TrainingOptions& training = config.training;
    if (!training.freeze && !training.init_from) return report;
    const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
    ParameterBuffer& parameters = model->parameters();
    freeze(parameters, training.freeze.value_or(""), config.place_of("freeze"));
    if (const auto frozen = parameters.frozen_names(); !frozen.empty()) {
      report.lines.push_back(fmt::format("freeze: {} of {} parameters train; frozen: {}",
                                         grouped(parameters.trained_count()), grouped(parameters.count()),
                                         join(frozen_modules(parameters), ", ")));
      report.json["freeze"] = {{"trained_parameters", parameters.trained_count()},
                               {"parameters", parameters.count()},
                               {"frozen", frozen}};
    }
    if (training.init_from) {
      const InitialWeights weights(config, parameters);
      for (std::string& line : weights.report()) report.lines.push_back(std::move(line));
      report.json["init_from"] = weights.record();
    }
    return report;
  }
};

/// With `json` an error is a document too, before it is thrown on.
RunConfig loaded(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                 std::vector<std::string>& notices, bool json) {
  try {
    RunConfig config = RunConfig::load(file, overrides, notices);
    // A family's histories have as many steps as are asked for: whether windows fit is known without them.
    if (!config.environment.has_own_tasks())
      WindowIndex(/*histories=*/1, config.window_shape(config.training.loss_positions));
    return config;
  } catch (const Error& error) {
    if (json) print_answer(nlohmann::json({{"valid", false}, {"error", error.what()}}).dump(2) + "\n");
    throw;
  }
}

}  // namespace

ExitCode validate(const std::filesystem::path& config_file, const std::vector<std::string>& overrides,
                  bool json) {
  std::vector<std::string> notices;
  RunConfig config = loaded(config_file, overrides, notices, json);
  const std::optional<OwnTasksReport> own = OwnTasksReport::of(config);
  if (own) notices.insert(notices.end(), own->notices.begin(), own->notices.end());
  // What own tasks need is known with their spaces.
  const bool known = !config.environment.has_own_tasks() || !config.environment.spaces().empty();
  const std::string warning = known ? memory_warning(config) : "";
  if (!warning.empty()) notices.push_back(warning);
  if (known && config.quantisation.is_on()) notices.push_back(quantised_notice(config));
  const FineTuning fine_tuning = known ? FineTuning::of(config) : FineTuning();
  const std::vector<KernelReport> kernels = known ? kernel_reports(config) : std::vector<KernelReport>();
  const std::vector<std::string> map = known ? planned_map(config) : std::vector<std::string>();
  if (json) {
    nlohmann::json report = {{"valid", true},
                             {"notices", notices},
                             {"model", config.model.architecture()},
                             {"resolved", config.resolved_yaml()},
                             {"kernels", as_json(kernels)}};
    if (!map.empty()) report["device_map"] = map;
    if (own) report["own_tasks"] = own->json;
    report.update(fine_tuning.json);
    print_answer(report.dump(2) + "\n");
    return ExitCode::kDone;
  }
  std::string text = config.resolved_yaml() + "\n";
  for (const std::string& line : own ? own->lines : std::vector{"tasks: " + tasks_text(config)})
    text += fmt::format("# {}\n", line);
  text += fmt::format("# model: {}\n", config.model.architecture());
  if (config.distributed.shard_optimizer) {
    text +=
        "# optimizer: AdamW, its moments divided among the ranks (of one rank there is nothing to shard)\n";
  }
  for (const std::string& line : fine_tuning.lines) text += fmt::format("# {}\n", line);
  text += as_text(kernels, "# ");
  for (const std::string& line : map) text += fmt::format("# {}\n", line);
  for (const std::string& notice : notices) text += fmt::format("# notice: {}\n", notice);
  text += fmt::format("# {} is valid: the run would live in {}, with histories from {}\n",
                      config_file.string(), config.folder().root.string(), config.histories());
  print_answer(text);
  return ExitCode::kDone;
}

ExitCode explain_configuration(bool json) {
  RunConfig defaults;
  std::vector<Section> sections = defaults.sections();
  print_answer((json ? explain_json(pointers_to(sections)) : explain(pointers_to(sections))) + "\n");
  return ExitCode::kDone;
}

}  // namespace adtrain
