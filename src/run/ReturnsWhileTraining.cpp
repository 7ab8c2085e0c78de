#include "run/ReturnsWhileTraining.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "collectives/StopRequest.h"
#include "evaluation/LearningCurve.h"
#include "memory/AutoBatchSize.h"
#include "run/EvaluationWorkers.h"
#include "training/TrainStep.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

/// libtorch's arithmetic as `adtrain evaluate` has it, while this object exists.
class EvaluationArithmetic {
 public:
  EvaluationArithmetic() {
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  }
  ~EvaluationArithmetic() {
    at::globalContext().setAllowTF32CuBLAS(tf32_);
    at::globalContext().setDeterministicAlgorithms(deterministic_, /*warn_only=*/false);
  }
  EvaluationArithmetic(const EvaluationArithmetic&) = delete;
  EvaluationArithmetic& operator=(const EvaluationArithmetic&) = delete;

 private:
  bool tf32_ = at::globalContext().allowTF32CuBLAS();
  bool deterministic_ = at::globalContext().deterministicAlgorithms();
};

/// The evaluation of one side of the split (test or train) that return_interval asks for: the settings with
/// which `adtrain evaluate` gives the same figure.
EvaluationOptions return_evaluation(const RunConfig& config, const std::string& side) {
  const ReturnOptions& returns = config.training.returns;
  EvaluationOptions options = config.evaluation;
  options.eval_tasks = side;
  options.eval_episodes = returns.episodes;
  options.eval_repeats = returns.repeats;
  options.eval_task_limit = returns.task_limit;
  // Trials that find a size take longer than these few environments do.
  if (options.eval_batch == kAutoBatchSize) options.eval_batch = EvaluationOptions{}.eval_batch;
  return options;
}

}  // namespace

ReturnsWhileTraining::ReturnsWhileTraining(const RunConfig& config, AlgorithmDistillation& trained,
                                           Communicator& communicator)
    : config_(config), trained_(trained), communicator_(communicator) {}

std::optional<ReturnFigures> ReturnsWhileTraining::measure() {
  const at::NoGradGuard no_grad;
  const EvaluationArithmetic arithmetic;
  const at::Device device = trained_.parameters().flat().device();
  try {
    TrainStep::run_out_of_memory(StepMoment::kReturns, device);
    const auto model = AlgorithmDistillation::to_be_loaded(config_.model, config_.model_shape(),
                                                           static_cast<uint64_t>(config_.training.seed));
    model->parameters().to(device, evaluated_type(config_, device));
    model->parameters().load(trained_.parameters().named());
    return measured_by(*model);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    throw Error(ExitCode::kOutOfMemory,
                fmt::format("{}, while in-context returns were measured, in at most {} environments at once. "
                            "What to do: set a smaller eval_batch, or return_interval: 0; then --resume",
                            meaning_of(error).error, return_evaluation(config_, "test").eval_batch));
  }
}

std::optional<ReturnFigures> ReturnsWhileTraining::figures_of(const Play& play,
                                                              const std::function<void()>& failed) const {
  ReturnFigures figures;
  if (!play.split.test.empty()) {
    const EvaluationOptions options = return_evaluation(config_, "test");
    figures.held_out = returns_of(play, options, failed);
    if (!figures.held_out) return std::nullopt;
    figures.measured_on = evaluation_identity(evaluated_tasks(options, play.split), play.origin, options);
    figures.measured_on.erase("checkpoint_step");
  }
  if (!play.split.train.empty()) {
    figures.trained = returns_of(play, return_evaluation(config_, "train"), failed);
    if (!figures.trained) return std::nullopt;
  }
  return figures;
}

std::optional<ContextReturns> ReturnsWhileTraining::returns_of(const Play& play,
                                                               const EvaluationOptions& options,
                                                               const std::function<void()>& failed) const {
  const InContextEvaluation evaluation(evaluated_tasks(options, play.split), options);
  const auto measured = evaluation.measure(
      play.rollouts(options), communicator_,
      [](int64_t, int64_t) { return StopRequest::signal_number() == 0; },
      [&failed](const InContextReturns&) {
        if (failed) failed();
      });
  if (!measured) return std::nullopt;
  const LearningCurve curve = LearningCurve::without_bounds(*measured);
  return ContextReturns{.first_episode = curve.mean.front(), .last_ten = curve.last10_mean};
}

void ReturnsWhileTraining::expect_held_out(const TaskSplit& split) const {
  if (!config_.training.keep_best || !split.test.empty()) return;
  throw ConfigError(
      "keep_best: found true, and no task is held out, on which checkpoints are compared; expected a "
      "train_env_ratio below 1, fewer train_tasks, or keep_best: false");
}

}  // namespace adtrain
