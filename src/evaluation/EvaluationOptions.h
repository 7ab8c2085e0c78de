#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

#include "config/Section.h"
#include "environments/EnvironmentOptions.h"
#include "evaluation/EvaluationProtocol.h"

namespace adtrain {

/// How a row of logits becomes an action.
enum class Sampling { kSample, kGreedy };

/// What networks see of the steps before: the window, computed anew at each step as in training, or keys and
/// values that are kept (AlgorithmDistillation::Rolling).
enum class EvaluationContext { kRecompute, kRolling };

/// The type in which a trained network computes where it is evaluated or scored.
enum class ComputeType { kAuto, kFloat32, kFloat16, kBFloat16 };

/// As the configuration spells them.
const char* name_of(Sampling sampling);
const char* name_of(EvaluationContext context);
const char* name_of(ComputeType type);

/// How a model is evaluated in context.
struct EvaluationOptions {
  EvaluationProtocol eval_protocol = EvaluationProtocol::kNone;
  int64_t eval_episodes = 50;
  int64_t eval_repeats = 1;
  /// A side of the task split (test, train or all), or numbers of tasks, as TaskOptions has them.
  std::string eval_tasks = "test";
  std::optional<int64_t> eval_task_limit;
  int64_t eval_batch = 64;
  int64_t eval_seed = 0;
  Sampling eval_sampling = Sampling::kSample;
  double eval_temperature = 1;
  std::optional<int64_t> eval_forget_unrewarded;  ///< episodes
  int64_t planning_horizon = 0;                   ///< steps; 0 for no planning
  int64_t beam_k = 8;
  int64_t beam_draws = 3;
  bool eval_terminal_observation = false;
  EvaluationContext eval_context = EvaluationContext::kRecompute;
  std::optional<std::string> eval_scores;  ///< a file: see TaskScores
  ComputeType torch_dtype = ComputeType::kAuto;

  /// torch_dtype; nothing where it is left open.
  std::optional<at::ScalarType> chosen_type() const;

  void declare(Section& section);
  /// `in_worker`: tasks are those of a worker, which says later which it has.
  void check(Findings& findings, const EnvironmentOptions& environment, bool in_worker) const;
};

/// Whether eval_tasks is one of its words, test, train and all.
bool names_a_side(const std::string& eval_tasks);
/// Finds fault with a key's choice of tasks that is neither a side nor numbers of tasks; numbers of the
/// families' tasks must be of some that exist.
void check_chosen_tasks(Findings& findings, const std::string& key, const std::string& text,
                        const EnvironmentOptions& environment, bool in_worker = false);

}  // namespace adtrain
