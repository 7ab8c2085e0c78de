#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "evaluation/EvaluationOptions.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/LearningCurve.h"

namespace adtrain {

/// Where measured returns come from, as summary.json tells it.
struct EvaluationOrigin {
  std::string env;
  int64_t env_split_seed = 0;
  int64_t checkpoint_step = 0;
};

/// What was evaluated and the learning curve in figures, as summary.json holds them.
std::string summary_json(const InContextReturns& measured, const LearningCurve& curve,
                         const EvaluationOrigin& origin, const EvaluationOptions& options);

/// Writes what an evaluation leaves behind, each file in one step:
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
