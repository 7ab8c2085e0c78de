#include "evaluation/gpu/GpuRollout.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/Cuda.h"
#include "base/Error.h"
#include "base/Random.h"
#include "environments/GpuTask.h"
#include "evaluation/ActionChooser.h"
#include "evaluation/gpu/RolloutKernel.h"

namespace adtrain {
namespace {

static_assert(gpu::kActionOutputs == kActions);
static_assert(gpu::kEndOfRegion == kEndCompress);

gpu::RolloutProblem problem_of(const PackedNetwork& network, const TaskFamily& family, int64_t trials,
                               const ModelOptions& model, const EvaluationOptions& options) {
  const auto most_tokens = static_cast<int32_t>(model.longest_context());
  return {.trials = static_cast<int32_t>(trials),
          .blocks_a_trial = gpu::blocks_a_trial(network.view(), static_cast<int>(trials), most_tokens),
          .grid_size = static_cast<int32_t>(family.grid_size()),
          .horizon = static_cast<int32_t>(family.horizon()),
          .most_tokens = most_tokens,
          .region = static_cast<int32_t>(model.compressed() ? model.compress_interval : model.n_transit - 1),
          .forget_unrewarded = static_cast<int32_t>(options.eval_forget_unrewarded.value_or(0)),
          .temperature = options.eval_temperature,
          .greedy = options.eval_sampling == Sampling::kGreedy,
          .terminal_observation = options.eval_terminal_observation};
}

}  // namespace

struct GpuRollout::Arrays {
  Arrays(const PackedNetwork& network, const gpu::RolloutProblem& common)
      : problem(common),
        tasks(static_cast<size_t>(problem.trials)),
        trials(tasks.size()),
        transitions(tasks.size() * gpu::kMostTokens),
        keys(tasks.size() * static_cast<size_t>(gpu::key_elements(network.view(), problem.most_tokens))),
        values(tasks.size() * static_cast<size_t>(gpu::value_elements(network.view(), problem.most_tokens))),
        arrivals(tasks.size()) {}

  gpu::RolloutMemory memory() {
    return {tasks.data(), trials.data(), transitions.data(), keys.data(), values.data(), arrivals.data()};
  }

  gpu::RolloutProblem problem;
  gpu::DeviceArray<GpuTask> tasks;
  gpu::DeviceArray<gpu::RolloutTrial> trials;
  gpu::DeviceArray<gpu::SeenTransition> transitions;
  gpu::DeviceArray<uint2> keys;
  gpu::DeviceArray<uint4> values;
  gpu::DeviceArray<unsigned> arrivals;
};

bool GpuRollout::fits(const PackedNetwork& network, const ModelOptions& model) {
  const c10::cuda::CUDAGuard guard(network.device());
  return gpu::blocks_a_trial(network.view(), 1, static_cast<int>(model.longest_context())) > 0;
}

GpuRollout::GpuRollout(const PackedNetwork& network, const TaskFamily& family, std::span<const Trial> trials,
                       const ModelOptions& model, const EvaluationOptions& options)
    : network_(network), trials_(trials.begin(), trials.end()) {
  if (trials.empty()) throw std::invalid_argument("A rollout needs at least one trial.");
  const c10::cuda::CUDAGuard guard(network.device());
  const gpu::RolloutProblem problem = problem_of(network, family, std::ssize(trials), model, options);
  if (problem.blocks_a_trial == 0) {
    throw EnvironmentError("this GPU cannot run rollouts of this model; see GpuRollout::fits");
  }
  arrays_ = std::make_unique<Arrays>(network, problem);
  std::vector<GpuTask> tasks;
  std::vector<gpu::RolloutTrial> states;
  for (const Trial& trial : trials_) {
    const Task task = family.task(trial.task);
    const uint64_t seed = ActionChooser::seed_of_trial(static_cast<uint64_t>(options.eval_seed), trial);
    tasks.push_back(gpu_task(task, seed));
    gpu::RolloutTrial state = {};
    state.agent = first_agent(tasks.back());
    states.push_back(state);
  }
  arrays_->tasks.upload(tasks.data(), tasks.size());
  arrays_->trials.upload(states.data(), states.size());
}

GpuRollout::~GpuRollout() {
  const c10::cuda::CUDAGuard guard(network_.device());
  arrays_.reset();
}

std::vector<float> GpuRollout::run_episode() {
  const c10::cuda::CUDAGuard guard(network_.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  gpu::launch_episode(network_.view(), arrays_->problem, arrays_->memory(), stream);
  gpu::check(cudaStreamSynchronize(stream), "an episode of rollouts");
  std::vector<gpu::RolloutTrial> states(trials_.size());
  arrays_->trials.download(states.data(), states.size());

  std::vector<float> earned;
  logits_ = at::empty({std::ssize(trials_), kActions});
  float* logits = logits_.mutable_data_ptr<float>();
  for (const gpu::RolloutTrial& state : states) {
    earned.push_back(state.earned);
    logits = std::copy_n(state.logits, kActions, logits);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].broken != 0) ActionChooser::throw_non_finite(trials_[i], {states[i].logits, kActions});
  }
  return earned;
}

}  // namespace adtrain
