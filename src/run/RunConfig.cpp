#include "run/RunConfig.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Text.h"
#include "config/Binder.h"
#include "config/Document.h"
#include "config/Reference.h"
#include "config/Scalar.h"
#include "data/BorrowedEpisodes.h"
#include "environments/TaskFamily.h"
#include "evaluation/EvaluationProtocol.h"
#include "model/spaces/SpaceFit.h"
#include "run/AccelerateSettings.h"
#include "run/GuideMaps.h"
#include "run/Plugins.h"
#include "run/TaskLists.h"
#include "run/own/HistoryPaths.h"
#include "run/own/OwnTasksKeys.h"

namespace adtrain {
namespace {

/// Loads what the document names as plug-ins and puts their absolute paths into it, as one text: a run may be
/// continued from another folder.
void load_plugins_of(Document& document) {
  std::vector<std::filesystem::path> files;
  std::string text;
  for (const std::string& name : document.texts_of("plugins")) {
    files.push_back(std::filesystem::absolute(name).lexically_normal());
    text += (text.empty() ? "" : ":") + files.back().string();
  }
  if (files.empty()) return;
  load_plugins(files);
  document.replace("plugins", text);
}

/// Puts a list of ranks into the document as one text.
void unfold_profiled_ranks(Document& document) {
  constexpr const char* kRanks = "profile_ranks";
  const Entry* const found = document.find(kRanks);
  if (found != nullptr && found->kind == Entry::Kind::kList) {
    document.replace(kRanks, join(document.texts_of(kRanks), ","));
  }
}

/// Puts a list of patterns into the document as one text.
void unfold_patterns(Document& document, const char* key) {
  const Entry* const found = document.find(key);
  if (found == nullptr || found->kind != Entry::Kind::kList) return;
  const std::vector<std::string> patterns = document.texts_of(key);
  if (patterns.empty()) {
    document.refuse(key, fmt::format("found {}; expected names or patterns of parameters, such as "
                                     "[embed_context, transformer.blocks.0], or null for none",
                                     found->found()));
  } else {
    document.replace(key, join(patterns, ","));
  }
}

/// write_compress_markers may be written as any of YAML's truth values, beside auto.
void unfold_truth_values(Document& document) {
  constexpr const char* kMarkers = "write_compress_markers";
  const Entry* const found = document.find(kMarkers);
  if (found == nullptr || found->kind != Entry::Kind::kScalar) return;
  if (const auto truth = Scalar<bool>::parse(found->text))
    document.replace(kMarkers, *truth ? "true" : "false");
}

constexpr const char* kPpoBatch = "batch_size";

/// Read off sections of their own: those that values are bound to list the choices of `env` and `model` when
/// they are declared, and plug-ins, which add to these, are loaded only after the names are known.
std::set<std::string> names_of_keys() {
  RunConfig defaults;
  std::set<std::string> names;
  for (const Section& section : defaults.sections()) {
    for (const Key& key : section.keys()) {
      names.insert(key.name());
      names.insert(key.aliases().begin(), key.aliases().end());
    }
  }
  return names;
}

/// The guides' batch_size is the training's, here it is PPO's: a remark where it may be meant otherwise,
/// empty where not.
std::string remark_on_batch_size(const Document& document) {
  const Entry* const found = document.find(kPpoBatch);
  if (found == nullptr) return "";
  const bool of_training =
      document.find("train_batch_size") != nullptr || document.find("global_batch_size") != nullptr;
  if (of_training && found->origin.line > 0) return "";
  return fmt::format(
      "{}: batch_size is the minibatch of PPO, which collects histories, and changes nothing in training; "
      "the micro-batch of training is train_batch_size, which may be auto_batch_size",
      found->origin.text());
}

/// The micro-batch that has no effect, as there is a global batch, of which each rank takes its share; null
/// where it has one.
const Entry* micro_batch_in_vain(const RunConfig& config, const Document& document) {
  const TrainingOptions& training = config.training;
  const bool in_vain = training.global_batch_size && training.train_batch_size != kAutoBatchSize;
  return in_vain ? document.find("train_batch_size") : nullptr;
}

/// On the command line it was meant.
void check_micro_batch(const RunConfig& config, const Document& document, Findings& findings) {
  const TrainingOptions& training = config.training;
  const Entry* const found = micro_batch_in_vain(config, document);
  if (found == nullptr || found->origin.line > 0) return;
  findings.add("train_batch_size",
               fmt::format("found {}, which has no effect beside global_batch_size: {}, of which each rank "
                           "takes its share; expected another global_batch_size, other "
                           "gradient_accumulation_steps, or --set global_batch_size=null with it",
                           training.train_batch_size, *training.global_batch_size));
}

/// In the file itself it may have been meant where an included one has the global batch; a run's own
/// configuration has both. Empty where there is nothing to remark.
std::string remark_on_micro_batch(const RunConfig& config, const Document& document,
                                  const std::filesystem::path& file) {
  const Entry* const found = micro_batch_in_vain(config, document);
  const Entry* const global = document.find("global_batch_size");
  if (found == nullptr || global == nullptr || found->origin.source != file.string()) return "";
  if (global->origin.source == found->origin.source || global->origin.line == 0) return "";
  return fmt::format("{}: train_batch_size has no effect beside {}: global_batch_size; set that to null here",
                     found->origin.text(), global->origin.text());
}

/// Of tasks of any space, their spaces too, where the configuration says them.
void check_model(const RunConfig& config, Findings& findings) {
  if (!config.environment.has_own_tasks()) {
    config.model.check(findings);
    return;
  }
  config.model.check_own_tasks(findings);
  if (!findings.empty()) return;
  check_spaces(config.model, config.environment.spaces(), findings);
}

/// Greedy actions are the same in each repeat of a family's tasks.
void check_returns(const RunConfig& config, Findings& findings) {
  const ReturnOptions& returns = config.training.returns;
  if (returns.interval == 0 || returns.repeats == 1) return;
  if (config.evaluation.eval_sampling != Sampling::kGreedy || config.environment.has_own_tasks()) return;
  findings.add("return_repeats",
               fmt::format("found {} with eval_sampling greedy, which would repeat the same run; "
                           "expected return_repeats: 1, or eval_sampling: sample",
                           returns.repeats));
}

/// As AlgorithmDistillation::why_not_rolling says, before there is a network.
void check_context(const RunConfig& config, Findings& findings) {
  const bool of_a_family = !config.environment.has_own_tasks();
  const bool cannot = of_a_family && (config.model.compressed() || config.model.is_plugin());
  const EvaluationOptions& evaluation = config.evaluation;
  if (evaluation.eval_context != EvaluationContext::kRolling || !cannot) return;
  findings.add(
      "eval_context",
      fmt::format("found rolling{} with {}; expected recompute",
                  evaluation.eval_protocol == EvaluationProtocol::kNone
                      ? ""
                      : fmt::format(" (eval_protocol {})", name_of(evaluation.eval_protocol)),
                  config.model.compressed()
                      ? "compressed context, in which a region that ends gives all tokens other positions"
                      : "a plug-in's network, which keeps no keys and values"));
}

/// Contexts without any reward are forgotten whole; those of regions end otherwise, and rows that slide do so
/// together.
void check_forgetting(const RunConfig& config, Findings& findings) {
  const EvaluationOptions& evaluation = config.evaluation;
  if (!evaluation.eval_forget_unrewarded) return;
  const auto refuse = [&](std::string_view why) {
    findings.add("eval_forget_unrewarded",
                 fmt::format("found {} with {}; expected null", *evaluation.eval_forget_unrewarded, why));
  };
  if (config.model.compressed()) refuse("use_compressed_context, whose regions end otherwise");
  if (evaluation.eval_context == EvaluationContext::kRolling && !config.environment.has_own_tasks())
    refuse("eval_context rolling, in which the contexts of all tasks have one length");
}

/// What a network that looks ahead must be, and where it may be asked.
void check_planning(const RunConfig& config, Findings& findings) {
  const int64_t horizon = config.evaluation.planning_horizon;
  if (config.model.dynamics && config.environment.family() == Family::kPlugin) {
    findings.add("dynamics",
                 fmt::format("found true with env: {}, a plug-in's, whose rewards may be any; expected "
                             "false",
                             config.environment.env));
  }
  if (horizon == 0) return;
  const auto refuse = [&](const std::string& why) {
    findings.add("planning_horizon", fmt::format("found {} {}", horizon, why));
  };
  if (!config.model.dynamics) {
    refuse("without dynamics: true, by which a network learns to look ahead in training; expected 0");
  } else if (horizon >= config.model.n_transit) {
    refuse(fmt::format("steps with n_transit {}, which holds history and imagined steps; expected at most {}",
                       config.model.n_transit, config.model.n_transit - 1));
  }
  if (config.worker.env_worker) refuse("with env_worker, whose environments are not planned in; expected 0");
  if (config.quantisation.is_on()) {
    refuse(fmt::format("with {}, and no network of quantised weights plans; expected 0",
                       config.quantisation.key()));
  }
  if (config.evaluation.eval_context == EvaluationContext::kRolling) {
    refuse("with eval_context: rolling, which keeps keys of the steps that happen; expected 0, or recompute");
  }
}

/// Of tasks of one's own; others are refused with all keys that are for these alone.
void check_packing(const RunConfig& config, Findings& findings) {
  if (!config.data.sequence_packing || !config.environment.has_own_tasks()) return;
  const auto refuse = [&](const std::string& why) {
    findings.add("sequence_packing", fmt::format("found true with {}, or sequence_packing: false", why));
  };
  if (config.training.loss_positions != LossPositions::kAll) {
    refuse(
        "loss_positions: last, which would read one of the histories of a row; expected loss_positions: all");
  }
  if (config.data.task_weights == TaskWeights::kTasks) {
    refuse(
        "task_weights: tasks, and the histories of a row are of several tasks; expected task_weights: "
        "windows");
  }
  if (config.data.last_fraction < 1) {
    refuse(
        fmt::format("last_fraction {}, which says where windows begin, and short histories are taken whole; "
                    "expected last_fraction: 1",
                    config.data.last_fraction));
  }
}

/// Which histories are trained on, and what windows of them borrow.
void check_windows(const RunConfig& config, Findings& findings) {
  if (config.data.least_final_return && config.environment.has_own_tasks()) {
    findings.add("least_final_return",
                 fmt::format("found {} with tasks of your own; it is for a family's tasks: expected null",
                             *config.data.least_final_return));
  }
  check_packing(config, findings);
  if (config.data.borrowed_episodes == 0) return;
  const auto refuse = [&](const std::string& why) {
    findings.add("borrowed_episodes",
                 fmt::format("found {} with {}; expected 0", config.data.borrowed_episodes, why));
  };
  const bool is_grid = !config.environment.has_own_tasks();
  const Family family = is_grid ? config.environment.family() : Family::kOwn;
  if (family != Family::kDarkroom && family != Family::kDarkKeyToDoor) {
    refuse(
        fmt::format("env {}, whose tasks do not differ in their rewards alone, as those of darkroom and "
                    "darkkeytodoor do",
                    config.environment.env));
    return;
  }
  if (config.model.compressed()) refuse("use_compressed_context, whose samples are regions");
  const int64_t horizon = config.environment.episode_horizon();
  if (config.model.n_transit > (BorrowedEpisodes::kMostSlots - 1) * horizon) {
    refuse(fmt::format("n_transit {}, a window of more than {} episodes of {} steps", config.model.n_transit,
                       BorrowedEpisodes::kMostSlots - 1, horizon));
  }
}

}  // namespace

std::vector<Section> RunConfig::sections() {
  std::vector<Section> list;
  const auto add = [&list](const char* title, auto& options) {
    list.emplace_back(title);
    options.declare(list.back());
  };
  list.reserve(12);
  add("Run", run);
  add("Environment", environment);
  tasks.declare(list.back());
  add("Collection (PPO)", collection);
  add("Data", data);
  add("Model", model);
  add("Training", training);
  add("Evaluation", evaluation);
  add("Scoring", scoring);
  add("Device maps", placement);
  add("Quantised weights", quantisation);
  add("Environments of your own", worker);
  add("Distribution", distributed);
  return list;
}

RunConfig RunConfig::load(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                          std::vector<std::string>& notices) {
  Document document;
  document.read_file(file);
  for (const std::string& assignment : overrides) document.set(assignment);
  std::vector<std::string> remarks = read_guide_maps(document, names_of_keys());
  std::ranges::move(take_accelerate_settings(document, process_environment), std::back_inserter(remarks));
  load_plugins_of(document);
  RunConfig config;
  std::vector<Section> sections = config.sections();
  unfold_profiled_ranks(document);
  unfold_patterns(document, "freeze");
  unfold_patterns(document, "llm_int8_skip_modules");
  unfold_task_lists(document);
  unfold_truth_values(document);
  unfold_spaces(document);
  unfold_histories(document);
  unfold_eval_protocol(document);
  const auto check = [&config, &document](Findings& findings) {
    config.run.check(findings);
    config.environment.check(findings);
    config.tasks.check(findings, config.environment);
    config.collection.check(findings, config.environment);
    check_model(config, findings);
    config.training.check(findings);
    check_micro_batch(config, document, findings);
    check_returns(config, findings);
    check_own_tasks(config, findings);
    config.evaluation.check(findings, config.environment, config.worker.env_worker.has_value());
    check_context(config, findings);
    check_forgetting(config, findings);
    check_planning(config, findings);
    check_windows(config, findings);
    config.scoring.check(findings, config.environment);
    config.placement.check(findings);
    config.quantisation.check(findings);
    config.worker.check(findings);
    config.distributed.check(findings);
  };
  for (std::string& notice : Binder(pointers_to(sections)).bind(document, check))
    notices.push_back(std::move(notice));
  std::ranges::move(remarks, std::back_inserter(notices));
  for (const Entry& entry : document.entries()) config.origins[entry.key] = entry.origin.text();
  config.collection.decide(config.model.compressed());
  if (config.environment.has_own_tasks()) config.model = config.model.of_own_tasks();
  config.model.decide();
  if (config.environment.has_own_tasks()) {
    config.data.take_all(document.find("train_source_timesteps") != nullptr,
                         document.find("train_n_stream") != nullptr);
    if (std::string remark = remark_on_label(config); !remark.empty()) notices.push_back(std::move(remark));
  }
  for (std::string& notice : config.quantisation.notices()) notices.push_back(std::move(notice));
  for (std::string& notice : config.placement.notices()) notices.push_back(std::move(notice));
  for (std::string& notice : config.collection.notices()) notices.push_back(std::move(notice));
  for (std::string& notice : config.model.notices()) notices.push_back(std::move(notice));
  if (!config.environment.has_own_tasks()) {
    for (const std::string& setting : config.model.space_pieces.chosen())
      notices.push_back(setting + " has no effect: it is for tasks of your own");
  }
  for (std::string& remark :
       std::array{remark_on_batch_size(document), remark_on_micro_batch(config, document, file)})
    if (!remark.empty()) notices.push_back(std::move(remark));
  return config;
}

std::string RunConfig::resolved_yaml() const {
  RunConfig copy = *this;
  std::vector<Section> sections = copy.sections();
  return adtrain::resolved_yaml(pointers_to(sections));
}

std::string RunConfig::resolved_json() const {
  RunConfig copy = *this;
  std::vector<Section> sections = copy.sections();
  return values_json(pointers_to(sections));
}

std::string RunConfig::fingerprint() const {
  return checksum_text(resolved_yaml());
}

RunFolder RunConfig::folder() const {
  const std::string name = run.run_name.value_or(fmt::format(
      "{}-{}-seed{}", model.compressed() ? "CompressedAD" : "AD", environment.env, environment.split_seed()));
  return {std::filesystem::path(run.runs_dir) / name};
}

std::filesystem::path RunConfig::history_file() const {
  return std::filesystem::path(data.traj_dir) / collection.file_name(environment);
}

std::string RunConfig::histories() const {
  return data.histories ? *data.histories : history_file().string();
}

std::string RunConfig::place_of(const std::string& key) const {
  const auto found = origins.find(key);
  return found == origins.end() ? key : fmt::format("{}: {}", found->second, key);
}

WindowShape RunConfig::window_shape(LossPositions positions) const {
  WindowShape shape{};
  shape.steps = data.train_source_timesteps;
  shape.horizon = TaskFamily::of(environment).horizon();
  shape.episode_stride = data.episode_stride;
  shape.length = model.n_transit;
  shape.region = model.compressed() ? model.compress_interval : 0;
  shape.whole_regions_only = positions == LossPositions::kAll;
  return shape;
}

}  // namespace adtrain
