#include "base/Cuda.h"
#include "base/Random.h"
#include "collection/gpu/Kernels.h"
#include "collection/gpu/Networks.cuh"
#include "environments/GpuGridWorld.cuh"

namespace adtrain::gpu {
namespace {

struct Shared {
  SharedNetworks networks;
  float2 cells[kRows];
};

/// What are_sound() of collection/Divergence.h says of an opinion.
__device__ bool is_sound(const Opinion& opinion) {
  constexpr float kRoundedOne = 0.5F;
  float total = 0;
  for (const float probability : opinion.probabilities) total += probability;
  return total > kRoundedOne && isfinite(opinion.value);
}

/// Has the networks say what they think of every state, and returns whether all of it is sound. For all
/// threads.
__device__ bool evaluate_states(Shared& shared, int grid_size, Opinion* opinions) {
  const Role role;
  const int thread = static_cast<int>(threadIdx.x), states = grid_size * grid_size;
  bool sound = true;
  for (int begin = 0; begin < states; begin += kRows) {
    const int rows = min(kRows, states - begin);
    if (thread < rows) {
      const int state = begin + thread, x = state / grid_size;
      shared.cells[thread] = {static_cast<float>(x), static_cast<float>(state - x * grid_size)};
    }
    __syncthreads();
    first_layer(shared.networks, role, shared.cells, rows);
    __syncthreads();
    second_layer(shared.networks, role, rows);
    __syncthreads();
    output_layer(shared.networks, rows);
    __syncthreads();
    if (thread < rows) {
      Opinion& opinion = opinions[begin + thread];
      softmax(shared.networks, thread, opinion.probabilities);
      opinion.value = shared.networks.outputs[kActions][thread];
      sound = sound && is_sound(opinion);
    }
  }
  return __syncthreads_and(sound) != 0;
}

__device__ int draw(const Opinion& opinion, float left) {
  int action = 0;
  while (action + 1 < kActions && left >= opinion.probabilities[action]) {
    left -= opinion.probabilities[action++];
  }
  return action;
}

/// A task's history as bytes.
struct HistoryBytes {
  uint8_t *states, *next_states, *actions, *rewards;

  __device__ HistoryBytes(uint8_t* first, int64_t transitions)
      : states(first),
        next_states(first + 2 * transitions),
        actions(first + 4 * transitions),
        rewards(first + 5 * transitions) {}

  __device__ void write(int64_t at, const GpuAgent& before, int action, int reward, const GpuAgent& after) {
    states[2 * at] = before.x;
    states[2 * at + 1] = before.y;
    next_states[2 * at] = after.x;
    next_states[2 * at + 1] = after.y;
    actions[at] = static_cast<uint8_t>(action);
    rewards[at] = static_cast<uint8_t>(reward);
  }
};

/// Lives through a rollout in one stream.
__device__ void live(const GpuProblem& problem, const GpuTask& task, const Opinion* opinions, int64_t stream,
                     int64_t first_step, GpuAgent& agent, Sample* samples, HistoryBytes history) {
  const GpuGridWorld room{task, problem.grid_size};
  RandomStream random(seed_of(task.seed, 1, stream), static_cast<uint64_t>(first_step));
  if (first_step == 0) agent = first_agent(task);
  for (int64_t step = 0; step < problem.ppo.rollout_steps; ++step) {
    const GpuAgent before = agent;
    const Opinion& opinion = opinions[room.state_of(before)];
    const int action = draw(opinion, random.uniform());
    const int reward = room.step(agent, action);
    const GpuAgent reached = agent;
    if ((first_step + step + 1) % problem.horizon == 0) agent = first_agent(task);
    samples[step * problem.ppo.streams + stream] = {room.state_of(before) * 8 + action,
                                                    opinion.probabilities[action], static_cast<float>(reward),
                                                    opinion.value};
    if (stream >= problem.kept_streams) continue;
    history.write((first_step + step) * problem.kept_streams + stream, before, action, reward,
                  problem.terminal_next_states ? reached : agent);
  }
}

/// Generalised advantage estimation in one stream, as collection/Advantages.h has it.
__device__ void estimate_advantages(const GpuProblem& problem, int64_t stream, int64_t first_step,
                                    float next_value, Sample* samples) {
  const auto discount = static_cast<float>(problem.ppo.discount);
  const auto lambda = static_cast<float>(problem.ppo.gae_lambda);
  float next_advantage = 0;
  for (int64_t step = problem.ppo.rollout_steps; step-- > 0;) {
    Sample& sample = samples[step * problem.ppo.streams + stream];
    const float goes_on = (first_step + step + 1) % problem.horizon == 0 ? 0 : 1;
    const float reward = sample.advantage, value = sample.target;
    next_advantage =
        reward + discount * next_value * goes_on - value + discount * lambda * goes_on * next_advantage;
    next_value = value;
    sample.advantage = next_advantage;
    sample.target = next_advantage + value;
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    roll_out_task(const GpuProblem problem, const TaskMemory memory, int64_t number) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int64_t index = blockIdx.x, streams = problem.ppo.streams;
  const GpuTask task = memory.tasks[index];
  Opinion* opinions = memory.opinions + index * problem.grid_size * problem.grid_size;
  Sample* samples = memory.samples + index * problem.samples();
  load_weights(shared.networks, memory.networks[index]);
  const bool sound = evaluate_states(shared, problem.grid_size, opinions);
  if (threadIdx.x == 0 && sound) ++memory.sound_rollouts[index];

  const int64_t first_step = number * problem.ppo.rollout_steps;
  const HistoryBytes history(memory.histories + kBytesOfTransition * index * problem.kept_steps(),
                             problem.kept_steps());
  for (int64_t stream = threadIdx.x; stream < streams; stream += kThreads) {
    GpuAgent& agent = memory.agents[index * streams + stream];
    live(problem, task, opinions, stream, first_step, agent, samples, history);
    const float next_value = opinions[agent.x * problem.grid_size + agent.y].value;
    estimate_advantages(problem, stream, first_step, next_value, samples);
  }
}

}  // namespace

void launch_rollout(const GpuProblem& problem, const TaskMemory& memory, int tasks, int64_t number) {
  check(cudaFuncSetAttribute(roll_out_task, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
        "cudaFuncSetAttribute");
  roll_out_task<<<tasks, kThreads, sizeof(Shared)>>>(problem, memory, number);
  check(cudaGetLastError(), "launch of roll_out_task");
}

}  // namespace adtrain::gpu
