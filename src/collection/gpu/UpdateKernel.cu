#include "base/Cuda.h"
#include "collection/gpu/Kernels.h"
#include "collection/gpu/ThreadAdam.cuh"

namespace adtrain::gpu {
namespace {

constexpr int kWarps = kThreads / 32;
static_assert(kThreads >= 2 * kLargestBatch, "half of the threads gather while the others differentiate");

struct Shared {
  SharedNetworks networks;
  alignas(16) float second_delta[2][kRows][kStride];
  OutputDerivatives derivatives;
  SampleDerivatives sample_derivatives;
  Minibatch minibatches[2];
  StateFlags flags;
  StateSlots slots;  ///< of the present minibatch
  float squares[kWarps];
  AdamRates rates;
};

/// The work of one task's thread block: a round of PPO's updates.
class Round {
 public:
  __device__ Round(Shared& shared, const GpuProblem& problem, const MinibatchPlan& plan,
                   const Sample* samples, NetworkState& state)
      : shared_(shared),
        plan_(plan),
        samples_(samples),
        grid_size_(problem.grid_size),
        learning_rate_(static_cast<float>(problem.ppo.learning_rate)),
        max_grad_norm_(static_cast<float>(problem.ppo.max_grad_norm)),
        loss_{static_cast<float>(1 - problem.ppo.clip_range), static_cast<float>(1 + problem.ppo.clip_range),
              static_cast<float>(2 * problem.ppo.value_coefficient),
              static_cast<float>(problem.ppo.entropy_coefficient)},
        mean_power_(state.mean_power),
        square_power_(state.square_power) {
    load_weights(shared.networks, state);
    adam_.load(role_, state);
    for (int i = thread(); i < grid_size_ * grid_size_; i += kThreads) shared.flags[i] = 0;
    __syncthreads();
    gather(shared.minibatches[0], shared.flags, plan, 0, thread(), samples);
    __syncthreads();
    complete(shared.minibatches[0]);
    __syncthreads();
  }

  __device__ void run() {
    for (int number = 0; number < plan_.minibatches; ++number) update(number);
  }

  __device__ void save(NetworkState& state) {
    adam_.each(role_, [&](int place, const float&, const float&) {
      const int network = role_.network;
      state.weights[place] =
          parameter(shared_.networks.weights[network], place - network * kPolicyParameters);
    });
    adam_.save(role_, state);
    if (thread() != kAdamThread) return;
    state.mean_power = mean_power_;
    state.square_power = square_power_;
  }

 private:
  // Who prepares the next minibatch and the step: warps that have no part in the input layer's gradient, and
  // a thread that has none in the output layer.
  static constexpr int kListWarp = 14, kNormaliseWarp = 15, kAdamThread = 12 * 32;

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  /// One step of the optimizer. A barrier stands after each part that others build on.
  __device__ void update(int number) {
    const Minibatch& now = shared_.minibatches[number % 2];
    Minibatch& next = shared_.minibatches[(number + 1) % 2];
    const bool more = number + 1 < plan_.minibatches;
    ThreadParameters gradient;
    for (int begin = 0; begin < now.distinct; begin += kRows) {
      const int rows = min(kRows, now.distinct - begin);
      const Backward backward{shared_.networks, shared_.second_delta, shared_.derivatives, now.cells + begin,
                              rows};
      first_layer(shared_.networks, role_, backward.cells, rows);
      __syncthreads();
      second_layer(shared_.networks, role_, rows);
      __syncthreads();
      output_layer(shared_.networks, rows);
      if (begin == 0) advance_rates();
      __syncthreads();
      if (thread() < kLargestBatch) {
        differentiate_samples(shared_.networks, now, shared_.slots, loss_, begin, rows,
                              shared_.sample_derivatives);
      } else if (begin == 0 && more) {
        gather(next, shared_.flags, plan_, number + 1, thread() - kLargestBatch, samples_);
      }
      __syncthreads();
      sum_by_state(shared_.networks, now, loss_, begin, rows, shared_.sample_derivatives,
                   shared_.derivatives);
      __syncthreads();
      backward.output(role_, gradient);
      __syncthreads();
      backward.hidden(role_, gradient);
      __syncthreads();
      backward.input(role_, gradient);
    }
    if (more) complete(next);
    adam_.step(role_, shared_.networks.weights[role_.network], gradient, clipping(gradient), shared_.rates);
    __syncthreads();
  }

  __device__ void complete(Minibatch& minibatch) {
    if (thread() / 32 == kListWarp) list_states(minibatch, shared_.flags, shared_.slots, grid_size_);
    if (thread() / 32 == kNormaliseWarp) normalise(minibatch);
  }

  __device__ void advance_rates() {
    if (thread() != kAdamThread) return;
    mean_power_ *= 0.9;
    square_power_ *= 0.999;
    shared_.rates = {learning_rate_ / static_cast<float>(1 - mean_power_),
                     1 / sqrtf(static_cast<float>(1 - square_power_))};
  }

  /// What scales both networks' gradients down to the largest norm. For all threads; holds a barrier.
  __device__ float clipping(const ThreadParameters& gradient) {
    float squares = 0;
    for (int i = 0; i < kTile; ++i) {
      for (int j = 0; j < kTile; ++j) squares += gradient.tile[i][j] * gradient.tile[i][j];
    }
    for (const float other : gradient.others) squares += other * other;
    squares = sum_of_warp(squares);
    if (thread() % 32 == 0) shared_.squares[thread() / 32] = squares;
    __syncthreads();
    float total = 0;
    for (const float part : shared_.squares) total += part;
    return fminf(1.0F, max_grad_norm_ / (sqrtf(total) + 1e-6F));
  }

  Shared& shared_;
  const Role role_;
  const MinibatchPlan plan_;
  const Sample* samples_;
  const int grid_size_;
  const float learning_rate_;
  const float max_grad_norm_;
  const LossWeights loss_;
  ThreadAdam adam_;
  double mean_power_, square_power_;  ///< kept by kAdamThread
};

__global__ void __launch_bounds__(kThreads, 1)
    update_task(const GpuProblem problem, const TaskMemory memory, int64_t round) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int64_t task = blockIdx.x;
  MinibatchPlan plan;
  plan.samples = static_cast<int>(problem.samples());
  plan.batch = static_cast<int>(min(problem.ppo.batch_size, problem.samples()));
  plan.per_epoch = (plan.samples + plan.batch - 1) / plan.batch;
  plan.minibatches = static_cast<int>(problem.ppo.epochs) * plan.per_epoch;
  plan.key = seed_of(memory.tasks[task].seed, 2, round);
  NetworkState& state = memory.networks[task];
  Round updates(*reinterpret_cast<Shared*>(shared_bytes), problem, plan,
                memory.samples + task * problem.samples(), state);
  updates.run();
  updates.save(state);
}

}  // namespace

int update_shared_bytes() {
  return sizeof(Shared);
}

void launch_update(const GpuProblem& problem, const TaskMemory& memory, int tasks, int64_t round) {
  check(cudaFuncSetAttribute(update_task, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
        "cudaFuncSetAttribute");
  update_task<<<tasks, kThreads, sizeof(Shared)>>>(problem, memory, round);
  check(cudaGetLastError(), "launch of update_task");
}

}  // namespace adtrain::gpu
