#include "evaluation/EvaluationFolder.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "base/NumberRanges.h"
#include "evaluation/EvaluationSummary.h"
#include "evaluation/NpyFile.h"
#include "model/Parameters.h"
#include "telemetry/Chart.h"

namespace adtrain {
namespace {

constexpr const char* kSummaryFile = "summary.json";
constexpr const char* kTableFile = "reward_episode.csv";
constexpr const char* kCurveFiles[] = {"learning_curve.svg", "learning_curve.png"};
constexpr const char* kScoreFiles[] = {"normalized_score.svg", "normalized_score.png"};

std::string plural(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// "In-context learning: darkroom, 8 test tasks at step 4000; 16 repeats, seed 0".
std::string title_of(const InContextReturns& measured, const EvaluationOrigin& origin,
                     const EvaluationOptions& options) {
  const bool is_side = names_a_side(options.eval_tasks) && options.eval_tasks != "all";
  const std::string side = is_side ? options.eval_tasks + " " : "";
  const std::string actions =
      options.eval_sampling == Sampling::kGreedy ? "greedy" : fmt::format("seed {}", options.eval_seed);
  return fmt::format("In-context learning: {}, {} at step {}; {}, {}",
                     origin.worker ? origin.worker->env_worker : origin.env,
                     plural(std::ssize(measured.tasks), side + "task"), origin.checkpoint_step,
                     plural(measured.repeats(), "repeat"), actions);
}

/// The learning curve with its band of one standard deviation over tasks, between floor and oracle.
Chart chart_of(const InContextReturns& measured, const LearningCurve& curve, const EvaluationOrigin& origin,
               const EvaluationOptions& options) {
  std::vector<double> episodes(curve.mean.size());
  std::iota(episodes.begin(), episodes.end(), 1.0);
  Chart chart;
  chart.title = title_of(measured, origin, options);
  chart.x_label = "episode";
  chart.y_label = "return";
  chart.series = {{"mean over tasks, and one standard deviation to each side", episodes, curve.mean,
                   Band::around(curve.mean, curve.std)}};
  if (curve.oracle) chart.references.push_back({"oracle", *curve.oracle});
  if (curve.random_floor) chart.references.push_back({"random", *curve.random_floor});
  chart.from_zero = true;
  return chart;
}

/// Normalised scores: their mean and interquartile mean, between a random policy's 0 and an expert's 1.
Chart chart_of(const NormalizedScores& scores, const std::string& title) {
  std::vector<double> episodes(scores.all.mean.size());
  std::iota(episodes.begin(), episodes.end(), 1.0);
  Chart chart;
  chart.title = title;
  chart.x_label = "episode";
  chart.y_label = "normalised score";
  chart.series = {{"interquartile mean over tasks and repeats", episodes, scores.all.iqm, Band()},
                  {"mean", episodes, scores.all.mean, Band()}};
  chart.references = {{"expert", 1.0}, {"random", 0.0}};
  return chart;
}

nlohmann::ordered_json json_of(const NormalizedScores::Curve& curve) {
  return {{"tasks", curve.tasks},
          {"last10_mean", curve.last10_mean},
          {"last10_iqm", curve.last10_iqm},
          {"mean", curve.mean},
          {"iqm", curve.iqm}};
}

nlohmann::ordered_json json_of(const NormalizedScores& scores) {
  nlohmann::ordered_json json = json_of(scores.all);
  for (const auto& [group, curve] : scores.groups) json["groups"][group] = json_of(curve);
  if (!scores.without_scores.empty()) json["tasks_without_scores"] = scores.without_scores;
  return json;
}

std::string table(const InContextReturns& measured) {
  const at::Tensor mean = measured.reward_episode();
  const at::Tensor std = measured.returns.std(1, /*unbiased=*/false);
  const auto means = mean.accessor<float, 2>();
  const auto deviations = std.accessor<float, 2>();
  std::string csv = "task,episode,reward,std_over_repeats\n";
  for (int64_t i = 0; i < mean.size(0); ++i) {
    for (int64_t episode = 0; episode < mean.size(1); ++episode) {
      csv += fmt::format("{},{},{},{}\n", measured.tasks[static_cast<size_t>(i)], episode + 1,
                         means[i][episode], deviations[i][episode]);
    }
  }
  return csv;
}

/// "test", "task-5", "tasks-0-3,8", or "40-tasks" where the numbers would make a long name.
std::string name_of_tasks(const std::string& eval_tasks) {
  if (names_a_side(eval_tasks)) return eval_tasks;
  constexpr size_t kLongest = 24;
  const int64_t count = NumberRanges::parse(eval_tasks).value().count();
  if (eval_tasks.size() > kLongest) return fmt::format("{}-tasks", count);
  return (count == 1 ? "task-" : "tasks-") + eval_tasks;
}

bool is_among(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

/// Of what summary.json holds, that which is no part of the identity. task_names follow from tasks.
bool is_result(std::string_view key) {
  return key == "task_names" || is_among(key, kEvaluationResults);
}

/// Whether summaries have it whatever its value is. A key that is missing here tells evaluations apart by its
/// presence, which at worst costs a folder; a key that should not be here costs results.
bool is_always_written(std::string_view key) {
  constexpr std::string_view kAlways[] = {"env",
                                          "env_split_seed",
                                          "grid_size",
                                          "horizon",
                                          "max_episode_steps",
                                          "checkpoint_step",
                                          "eval_tasks",
                                          "eval_seed",
                                          "eval_sampling",
                                          "eval_terminal_observation",
                                          "tasks",
                                          "repeats",
                                          "episodes"};
  return is_among(key, kAlways);
}

/// Whether nothing that `one` says is said otherwise, or left to a default, by the other.
bool is_said_by(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other) {
  for (const auto& [key, value] : one.items()) {
    if (is_result(key)) continue;
    const auto found = other.find(key);
    if (found == other.end() ? !is_always_written(key) : *found != value) return false;
  }
  return true;
}

/// Whether a folder holds the results of another evaluation. Unreadable results count as another's.
bool is_of_another(const std::filesystem::path& folder, const nlohmann::ordered_json& identity) {
  const std::filesystem::path file = folder / kSummaryFile;
  std::error_code unreachable;  // then nothing can be written there either
  if (!std::filesystem::exists(file, unreachable)) return false;
  const auto found = nlohmann::ordered_json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  return !found.is_object() || !is_same_evaluation(identity, found);
}

/// Whether an evaluation has all tasks and episodes of what was played before. Not where either does not say.
bool has_all_of(const nlohmann::ordered_json& identity, const nlohmann::ordered_json& played) {
  if (!identity.contains("tasks") || !played.is_object()) return false;
  const auto tasks = played.find("tasks"), episodes = played.find("episodes");
  if (tasks == played.end() || !tasks->is_array()) return false;
  if (episodes == played.end() || !episodes->is_number_integer()) return false;
  const nlohmann::ordered_json& own = identity["tasks"];
  const auto is_own = [&](const nlohmann::ordered_json& task) {
    return std::find(own.begin(), own.end(), task) != own.end();
  };
  return episodes->get<int64_t>() <= identity["episodes"].get<int64_t>() &&
         std::all_of(tasks->begin(), tasks->end(), is_own);
}

/// Whether the temperature is of any effect.
bool draws(const EvaluationOptions& options) {
  return options.eval_sampling != Sampling::kGreedy || options.planning_horizon > 0;
}

/// How many tasks, and how actions are chosen, as far as the run's own settings do not say so.
std::string unusual_settings(const EvaluationOptions& options, const EvaluationOptions& usual,
                             size_t task_count) {
  std::string text;
  if (options.eval_task_limit != usual.eval_task_limit) text += fmt::format("-{}-tasks", task_count);
  if (options.eval_sampling != usual.eval_sampling)
    text += fmt::format("-{}", name_of(options.eval_sampling));
  if (options.eval_temperature != usual.eval_temperature && draws(options))
    text += fmt::format("-temperature-{}", options.eval_temperature);
  if (options.eval_forget_unrewarded != usual.eval_forget_unrewarded) {
    text += options.eval_forget_unrewarded ? fmt::format("-forget-{}", *options.eval_forget_unrewarded)
                                           : std::string("-no-forgetting");
  }
  if (options.planning_horizon != usual.planning_horizon) {
    text += options.planning_horizon > 0 ? fmt::format("-planning-{}", options.planning_horizon)
                                         : std::string("-no-planning");
  }
  if (options.eval_context != usual.eval_context) text += fmt::format("-{}", name_of(options.eval_context));
  if (options.torch_dtype != usual.torch_dtype) text += fmt::format("-{}", name_of(options.torch_dtype));
  if (options.eval_seed != usual.eval_seed) text += fmt::format("-seed-{}", options.eval_seed);
  return text;
}

/// Where an evaluation's results go; `ending` ends the name. Other evaluations than `compared` keep theirs.
std::filesystem::path folder_for(const std::filesystem::path& parent, const nlohmann::ordered_json& identity,
                                 const nlohmann::ordered_json& compared, const EvaluationOptions& options,
                                 const EvaluationOptions& usual, const std::string& ending) {
  const std::string what = fmt::format("{}-step-{}", name_of_tasks(options.eval_tasks),
                                       identity["checkpoint_step"].get<int64_t>());
  const std::string size = fmt::format("-{}x{}", options.eval_repeats, options.eval_episodes);
  const bool usual_size =
      options.eval_repeats == usual.eval_repeats && options.eval_episodes == usual.eval_episodes;
  const auto tasks = identity.find("tasks");
  const auto task_count =
      tasks != identity.end() ? tasks->size() : static_cast<size_t>(options.eval_task_limit.value_or(0));
  std::string how = unusual_settings(options, usual, task_count);
  if (identity.contains("n_transit")) how += fmt::format("-window-{}", identity["n_transit"].get<int64_t>());
  if (identity.contains("quantisation")) how += "-" + identity["quantisation"].get<std::string>();
  if (identity.contains("env_worker")) how += "-worker";
  std::filesystem::path folder = parent / (what + (usual_size ? "" : size) + how + ending);
  if (is_of_another(folder, compared)) folder = parent / (what + size + how + ending);
  for (int number = 2; is_of_another(folder, compared); ++number) {
    folder = parent / fmt::format("{}{}{}-{}{}", what, size, how, number, ending);
  }
  return folder;
}

}  // namespace

EvaluationOrigin::Worker EvaluationOrigin::Worker::of(const WorkerOptions& options) {
  return {options.env_worker.value(), options.max_episode_steps, /*task_names=*/{}, options.env_group,
          options.clip_actions};
}

EvaluationOrigin EvaluationOrigin::of(const EnvironmentOptions& environment,
                                      const std::optional<TaskFamily>& family, int64_t checkpoint_step) {
  return {environment.env,
          environment.split_seed(),
          checkpoint_step,
          family ? family->grid_size() : 0,
          family ? family->horizon() : 0,
          /*worker=*/std::nullopt};
}

nlohmann::ordered_json evaluation_identity(const std::vector<int64_t>& tasks, const EvaluationOrigin& origin,
                                           const EvaluationOptions& options) {
  nlohmann::ordered_json identity = {{"env", origin.env}, {"env_split_seed", origin.env_split_seed}};
  if (origin.grid_size > 0) identity["grid_size"] = origin.grid_size;
  if (origin.worker) {
    identity["env_worker"] = origin.worker->env_worker;
    identity["max_episode_steps"] = origin.worker->max_episode_steps;
    if (origin.worker->env_group) identity["env_group"] = *origin.worker->env_group;
    if (!origin.worker->clip_actions) identity["clip_actions"] = false;
  } else {
    identity["horizon"] = origin.horizon;
  }
  identity["checkpoint_step"] = origin.checkpoint_step;
  identity["eval_tasks"] = options.eval_tasks;
  identity["eval_seed"] = options.eval_seed;
  identity["eval_sampling"] = name_of(options.eval_sampling);
  if (options.eval_temperature != 1 && draws(options))
    identity["eval_temperature"] = options.eval_temperature;
  if (options.eval_forget_unrewarded) identity["eval_forget_unrewarded"] = *options.eval_forget_unrewarded;
  if (options.planning_horizon > 0) {
    identity["planning_horizon"] = options.planning_horizon;
    identity["beam_k"] = options.beam_k;
    identity["beam_draws"] = options.beam_draws;
  }
  identity["eval_terminal_observation"] = options.eval_terminal_observation;
  const bool rolls = options.eval_context != EvaluationContext::kRecompute;
  if (rolls) identity["eval_context"] = name_of(options.eval_context);
  if (rolls || origin.type != at::kFloat) identity["precision"] = precision_name(origin.type);
  for (const auto& [key, text] : origin.quantisation) identity[key] = text;
  identity.update(origin.shown_otherwise);
  if (!tasks.empty()) identity["tasks"] = tasks;
  identity["repeats"] = options.eval_repeats;
  identity["episodes"] = options.eval_episodes;
  return identity;
}

bool is_same_evaluation(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other) {
  return is_said_by(one, other) && is_said_by(other, one);
}

std::filesystem::path evaluation_folder(const std::filesystem::path& parent,
                                        const nlohmann::ordered_json& identity,
                                        const EvaluationOptions& options, const EvaluationOptions& usual) {
  return folder_for(parent, identity, /*compared=*/identity, options, usual, /*ending=*/"");
}

std::filesystem::path incomplete_evaluation_folder(const std::filesystem::path& parent,
                                                   const nlohmann::ordered_json& identity,
                                                   const EvaluationOptions& options,
                                                   const EvaluationOptions& usual) {
  nlohmann::ordered_json compared = identity;
  for (const char* how_much : {"tasks", "episodes"}) compared.erase(how_much);
  return folder_for(parent, identity, compared, options, usual, kIncompleteEvaluation);
}

void remove_incomplete_evaluation(const std::filesystem::path& parent, const nlohmann::ordered_json& identity,
                                  const EvaluationOptions& options, const EvaluationOptions& usual) {
  const std::filesystem::path folder = incomplete_evaluation_folder(parent, identity, options, usual);
  if (!std::filesystem::exists(folder / kSummaryFile)) return;
  const auto played = nlohmann::ordered_json::parse(read_file(folder / kSummaryFile), nullptr,
                                                    /*allow_exceptions=*/false);
  if (!has_all_of(identity, played)) return;
  // The summary first: without it what is left is no evaluation to readers.
  for (const char* const name : {kSummaryFile, kTableFile, kReturnsFile, kReturnsOfRepeatsFile})
    std::filesystem::remove(folder / name);
  for (const char* const name : kCurveFiles) std::filesystem::remove(folder / name);
  for (const char* const name : kScoreFiles) std::filesystem::remove(folder / name);
  if (std::filesystem::is_empty(folder)) std::filesystem::remove(folder);
}

std::string summary_json(const InContextReturns& measured, const LearningCurve& curve,
                         const EvaluationOrigin& origin, const EvaluationOptions& options) {
  EvaluationOptions measured_options = options;
  measured_options.eval_repeats = measured.repeats();
  measured_options.eval_episodes = measured.episodes();
  nlohmann::ordered_json summary = evaluation_identity(measured.tasks, origin, measured_options);
  if (origin.worker && !origin.worker->task_names.empty()) summary["task_names"] = origin.worker->task_names;
  summary["last10_mean"] = curve.last10_mean;
  if (curve.random_floor) summary["random_floor"] = *curve.random_floor;
  if (curve.oracle) summary["oracle"] = *curve.oracle;
  if (curve.scores) {
    summary["normalized_score"] = json_of(*curve.scores);
    if (options.eval_scores) summary["normalized_score"]["eval_scores"] = *options.eval_scores;
  }
  summary["mean"] = curve.mean;
  summary["std"] = curve.std;
  return summary.dump(2) + "\n";
}

void write_evaluation(const std::filesystem::path& folder, const InContextReturns& measured,
                      const LearningCurve& curve, const EvaluationOrigin& origin,
                      const EvaluationOptions& options) {
  write_file_atomically(folder / kReturnsFile, npy_bytes(measured.reward_episode()));
  if (measured.repeats() > 1) {
    write_file_atomically(folder / kReturnsOfRepeatsFile, npy_bytes(measured.returns));
  }
  write_file_atomically(folder / kTableFile, table(measured));
  write_file_atomically(folder / kSummaryFile, summary_json(measured, curve, origin, options));
  for (const char* const name : kCurveFiles) {
    chart_of(measured, curve, origin, options).draw(folder / name);
  }
  for (const char* const name : kScoreFiles) {
    std::filesystem::remove(folder / name);  // an evaluation of before may have known scores
    if (curve.scores) chart_of(*curve.scores, title_of(measured, origin, options)).draw(folder / name);
  }
}

}  // namespace adtrain
