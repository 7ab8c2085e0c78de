#include "evaluation/EvaluationFolder.h"

#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/File.h"
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
  chart.series = {
      {"mean over tasks, and one standard deviation to each side", episodes, curve.mean, curve.std}};
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

}  // namespace

std::string summary_json(const InContextReturns& measured, const LearningCurve& curve,
                         const EvaluationOrigin& origin, const EvaluationOptions& options) {
  const nlohmann::ordered_json summary = {
      {"env", origin.env},
      {"env_split_seed", origin.env_split_seed},
      {"checkpoint_step", origin.checkpoint_step},
      {"eval_seed", options.eval_seed},
      {"eval_sampling", options.eval_sampling == Sampling::kGreedy ? "greedy" : "sample"},
      {"eval_terminal_observation", options.eval_terminal_observation},
      {"tasks", measured.tasks},
      {"repeats", measured.repeats()},
      {"episodes", measured.episodes()},
      {"last10_mean", curve.last10_mean},
      {"random_floor", curve.random_floor},
      {"oracle", curve.oracle},
      {"mean", curve.mean},
      {"std", curve.std}};
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
