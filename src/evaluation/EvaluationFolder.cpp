#include "evaluation/EvaluationFolder.h"

#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
#include "base/NumberRanges.h"
#include "evaluation/NpyFile.h"
#include "telemetry/Chart.h"

namespace adtrain {
namespace {

/// The learning curve with its band of one standard deviation over tasks, between floor and oracle.
Chart chart_of(const LearningCurve& curve, const std::string& env) {
  std::vector<double> episodes(curve.mean.size());
  std::iota(episodes.begin(), episodes.end(), 1.0);
  Chart chart;
  chart.title = "In-context learning: " + env;
  chart.x_label = "episode";
  chart.y_label = "return";
  chart.series = {{"mean over tasks, and one standard deviation to each side", episodes, curve.mean,
                   Band::around(curve.mean, curve.std)}};
  chart.references = {{"oracle", curve.oracle}, {"random", curve.random_floor}};
  chart.from_zero = true;
  return chart;
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

/// Whether a folder holds the results of another evaluation. Unreadable results count as another's; keys that
/// an earlier version did not write are ignored.
bool is_of_another(const std::filesystem::path& folder, const nlohmann::ordered_json& identity) {
  const std::filesystem::path file = folder / "summary.json";
  if (!std::filesystem::exists(file)) return false;
  const auto found = nlohmann::ordered_json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (!found.is_object()) return true;
  for (const auto& [key, value] : identity.items()) {
    if (found.contains(key) && found[key] != value) return true;
  }
  return false;
}

}  // namespace

nlohmann::ordered_json evaluation_identity(const std::vector<int64_t>& tasks, const EvaluationOrigin& origin,
                                           const EvaluationOptions& options) {
  return {{"env", origin.env},
          {"env_split_seed", origin.env_split_seed},
          {"grid_size", origin.grid_size},
          {"horizon", origin.horizon},
          {"checkpoint_step", origin.checkpoint_step},
          {"eval_seed", options.eval_seed},
          {"eval_sampling", options.eval_sampling == Sampling::kGreedy ? "greedy" : "sample"},
          {"eval_terminal_observation", options.eval_terminal_observation},
          {"tasks", tasks},
          {"repeats", options.eval_repeats},
          {"episodes", options.eval_episodes}};
}

std::filesystem::path evaluation_folder(const std::filesystem::path& first,
                                        const nlohmann::ordered_json& identity,
                                        const EvaluationOptions& options) {
  if (!is_of_another(first, identity)) return first;
  const std::string name =
      fmt::format("evaluation-{}-step-{}-{}x{}{}", name_of_tasks(options.eval_tasks),
                  identity["checkpoint_step"].get<int64_t>(), options.eval_repeats, options.eval_episodes,
                  options.eval_sampling == Sampling::kGreedy ? "-greedy" : "");
  std::filesystem::path folder = first.parent_path() / name;
  for (int number = 2; is_of_another(folder, identity); ++number) {
    folder = first.parent_path() / fmt::format("{}-{}", name, number);
  }
  return folder;
}

std::string summary_json(const InContextReturns& measured, const LearningCurve& curve,
                         const EvaluationOrigin& origin, const EvaluationOptions& options) {
  EvaluationOptions measured_options = options;
  measured_options.eval_repeats = measured.repeats();
  measured_options.eval_episodes = measured.episodes();
  nlohmann::ordered_json summary = evaluation_identity(measured.tasks, origin, measured_options);
  summary["last10_mean"] = curve.last10_mean;
  summary["random_floor"] = curve.random_floor;
  summary["oracle"] = curve.oracle;
  summary["mean"] = curve.mean;
  summary["std"] = curve.std;
  return summary.dump(2) + "\n";
}

void write_evaluation(const std::filesystem::path& folder, const InContextReturns& measured,
                      const LearningCurve& curve, const EvaluationOrigin& origin,
                      const EvaluationOptions& options) {
  write_file_atomically(folder / "reward_episode.npy", npy_bytes(measured.reward_episode()));
  if (measured.repeats() > 1) {
    write_file_atomically(folder / "reward_episode_repeats.npy", npy_bytes(measured.returns));
  }
  write_file_atomically(folder / "reward_episode.csv", table(measured));
  write_file_atomically(folder / "summary.json", summary_json(measured, curve, origin, options));
  for (const char* name : {"learning_curve.svg", "learning_curve.png"}) {
    chart_of(curve, origin.env).draw(folder / name);
  }
}

}  // namespace adtrain
