#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "evaluation/EvaluationOptions.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/LearningCurve.h"

namespace adtrain {

/// What is evaluated, as summary.json records it.
struct EvaluationOrigin {
  std::string env;
  int64_t env_split_seed = 0;
  int64_t checkpoint_step = 0;
  int64_t grid_size = 0;
  int64_t horizon = 0;
};

/// What identifies an evaluation: the part of summary.json before the results.
nlohmann::ordered_json evaluation_identity(const std::vector<int64_t>& tasks, const EvaluationOrigin& origin,
                                           const EvaluationOptions& options);

/// The folder for an evaluation's results, chosen such that no other evaluation's results are overwritten:
/// `first`, unless it holds the results of another one; then
/// `evaluation-<tasks>-step-<N>-<repeats>x<episodes>` beside it, <tasks> being eval_tasks, with a number
/// appended where that is taken too. A repeated evaluation gets its own folder again.
std::filesystem::path evaluation_folder(const std::filesystem::path& first,
                                        const nlohmann::ordered_json& identity,
                                        const EvaluationOptions& options);

/// The content of summary.json: what was evaluated, and the learning curve in figures.
std::string summary_json(const InContextReturns& measured, const LearningCurve& curve,
                         const EvaluationOrigin& origin, const EvaluationOptions& options);

/// Writes the results of an evaluation, each file atomically:
///
///     reward_episode.npy          float32 (tasks, episodes): mean over repeats
///     reward_episode_repeats.npy  float32 (tasks, repeats, episodes), where there are several repeats
///     reward_episode.csv          the same in one line per task and episode, with the deviation over repeats
///     summary.json                summary_json
///     learning_curve.svg, .png    the learning curve between the random floor and the oracle
///
/// For one rank to call. Throws std::filesystem::filesystem_error where the folder cannot be written.
void write_evaluation(const std::filesystem::path& folder, const InContextReturns& measured,
                      const LearningCurve& curve, const EvaluationOrigin& origin,
                      const EvaluationOptions& options);

}  // namespace adtrain
