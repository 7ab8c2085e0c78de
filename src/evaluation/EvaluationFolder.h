#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include "environments/worker/WorkerOptions.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/InContextEvaluation.h"
#include "evaluation/LearningCurve.h"

namespace adtrain {

/// What is evaluated, as summary.json records it.
struct EvaluationOrigin {
  std::string env;
  int64_t env_split_seed = 0;
  int64_t checkpoint_step = 0;
  int64_t grid_size = 0;  ///< 0 for own tasks, as is the horizon
  int64_t horizon = 0;
  /// Where it is played in a worker's environments, which end episodes themselves.
  struct Worker {
    std::string env_worker;
    int64_t max_episode_steps = 0;
    std::vector<std::string> task_names;  ///< of its TASKS that are evaluated; empty where it has none
    std::optional<std::string> env_group = std::nullopt;
    bool clip_actions = true;

    /// Without task_names, which the worker itself says later.
    static Worker of(const WorkerOptions& options);
  };
  std::optional<Worker> worker = std::nullopt;
  /// In which the network computes. It is part of the identity where that is not fp32 as a matter of course:
  /// see evaluated_type.
  at::ScalarType type = at::kFloat;
  /// In which form its weights are kept: QuantisationOptions::identity.
  std::vector<std::pair<std::string, std::string>> quantisation = {};
  /// What the network is shown otherwise than the run's own config.yaml says, as keys with their values:
  /// n_transit, of compressed context compress_interval, of own tasks reward_scale.
  nlohmann::ordered_json shown_otherwise = nlohmann::ordered_json::object();

  /// `family`: nothing for own tasks.
  static EvaluationOrigin of(const EnvironmentOptions& environment, const std::optional<TaskFamily>& family,
                             int64_t checkpoint_step);
};

/// The link beside evaluations to the newest of them.
constexpr const char* kLatestEvaluation = "latest";
/// The end of a folder's name that holds what was played before environments failed: no finished evaluation.
constexpr const char* kIncompleteEvaluation = "-incomplete";

/// The files of returns by task and episode, and by task, repeat and episode.
constexpr const char* kReturnsFile = "reward_episode.npy";
constexpr const char* kReturnsOfRepeatsFile = "reward_episode_repeats.npy";

/// What identifies an evaluation: the part of summary.json before the results. Without tasks where these are
/// not known yet.
nlohmann::ordered_json evaluation_identity(const std::vector<int64_t>& tasks, const EvaluationOrigin& origin,
                                           const EvaluationOptions& options);

/// Whether two identities, or summaries that begin with one, are of the same evaluation. Keys that are
/// written only where they are not the default, such as precision, tell evaluations apart also where only one
/// of both has them. Keys that every summary has today may be missing on either side: an earlier version did
/// not write them, or, as tasks, they are not known yet. Results are not compared.
bool is_same_evaluation(const nlohmann::ordered_json& one, const nlohmann::ordered_json& other);

/// The folder in `parent` for an evaluation's results: `<tasks>-step-<N>`, <tasks> being eval_tasks, to which
/// is appended what differs from the run's own settings, `usual`: `-<repeats>x<episodes>`, `-<T>-tasks`,
/// `-greedy`, `-seed-<S>`, `-window-<n_transit>`, `-nf4`, and `-worker` where it is played in a worker's
/// environments. It is chosen such that no other evaluation's results (is_same_evaluation) are overwritten:
/// where that name is taken, repeats and episodes are appended in any case, and then a number. A repeated
/// evaluation gets its own folder again.
std::filesystem::path evaluation_folder(const std::filesystem::path& parent,
                                        const nlohmann::ordered_json& identity,
                                        const EvaluationOptions& options, const EvaluationOptions& usual);

/// The same for what was played of the evaluation before its environments failed; the name ends with
/// kIncompleteEvaluation. What was played of another evaluation is not overwritten, however much of this one
/// is played each time.
std::filesystem::path incomplete_evaluation_folder(const std::filesystem::path& parent,
                                                   const nlohmann::ordered_json& identity,
                                                   const EvaluationOptions& options,
                                                   const EvaluationOptions& usual);

/// Removes what was kept in incomplete_evaluation_folder, once the evaluation of this identity has been
/// written whole: the files that write_evaluation writes, and the folder where it is empty then. Keeps it
/// where the evaluation lacks some of the tasks or episodes that were played. Throws
/// std::filesystem::filesystem_error where they cannot be removed.
void remove_incomplete_evaluation(const std::filesystem::path& parent, const nlohmann::ordered_json& identity,
                                  const EvaluationOptions& options, const EvaluationOptions& usual);

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
///     normalized_score.svg, .png  the same on the scale of each task, where scores are known
///
/// Tasks are in summary.json's order. For one rank to call. Throws std::filesystem::filesystem_error where
/// the folder cannot be written.
void write_evaluation(const std::filesystem::path& folder, const InContextReturns& measured,
                      const LearningCurve& curve, const EvaluationOrigin& origin,
                      const EvaluationOptions& options);

}  // namespace adtrain
