#include <algorithm>

#include "base/Launch.cuh"
#include "base/Random.h"
#include "environments/GpuGridWorld.cuh"
#include "evaluation/gpu/ContextTokens.cuh"
#include "evaluation/gpu/Layers.cuh"
#include "evaluation/gpu/RolloutKernel.h"

/// One launch runs one episode of every trial. A trial belongs to one or several thread blocks, which compute
/// the tiles of its sequence (Layers.cuh); the block that has the query acts.
///
/// Keys and values stay valid as long as their tokens keep their places: while a context or a region grows, a
/// step computes its two new tokens alone. A full context that slides changes the place of every token (and
/// what the oldest one had told the others), so all are computed anew; so are they when a region is closed.
namespace adtrain::gpu {
namespace {

constexpr int kActions = kActionOutputs;

/// A trial at hand.
struct SharedTrial {
  RolloutTrial trial;
  GpuTask task;
  float logits[kMostOutputs];
};

/// Copies words from one memory to another. For all threads.
template <class Value>
__device__ void copy_words(Value& to, const Value& from) {
  static_assert(sizeof(Value) % 4 == 0 && sizeof(Value) / 4 <= kThreads, "a thread a word");
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= static_cast<int>(sizeof(Value) / 4)) return;
  reinterpret_cast<uint32_t*>(&to)[thread] = reinterpret_cast<const uint32_t*>(&from)[thread];
}

int __host__ __device__ tiles_of_block(int most_tokens, int blocks) {
  return divide_up(divide_up(most_tokens, kTileRows), blocks);
}

/// One of the thread blocks of a trial.
template <int kHeadSize>
class TrialBlock {
 public:
  /// `shared`: first the layers' part, then a SharedTrial.
  __device__ TrialBlock(const RolloutNetwork& network, const RolloutProblem& problem,
                        const RolloutMemory& memory, const LayersLayout& layout, unsigned char* shared)
      : network_(network),
        problem_(problem),
        rank_(static_cast<int>(blockIdx.x) % problem.blocks_a_trial),
        memory_of_trial_(*memory.trials),
        ring_(memory.transitions),
        arrivals_(memory.arrivals),
        trial_(reinterpret_cast<SharedTrial*>(shared + layout.total)->trial),
        task_(reinterpret_cast<SharedTrial*>(shared + layout.total)->task),
        logits_(reinterpret_cast<SharedTrial*>(shared + layout.total)->logits),
        layers_(network, problem.most_tokens, shared, layout, memory.keys, memory.values) {
    copy_words(task_, *memory.tasks);
    copy_words(trial_, memory_of_trial_);
    __syncthreads();
  }

  __device__ void run_episode() {
    for (int step = 0; step < problem_.horizon; step += trial_.ask_again != 0 ? 0 : 1) {
      ask();
      if (tiles_.have_query()) {
        judge();
        if (warp_number() == 0) answer(step);
        __syncthreads();
        copy_words(memory_of_trial_, trial_);
      }
      wait_for_trial();
      copy_words(trial_, memory_of_trial_);
      __syncthreads();
    }
  }

 private:
  /// Waits until all of the trial's blocks have come this far and sees what they have written. All of them
  /// run at once: the launch is cooperative.
  __device__ void wait_for_trial() {
    __syncthreads();
    if (problem_.blocks_a_trial == 1) return;
    arrivals_awaited_ += static_cast<unsigned>(problem_.blocks_a_trial);
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrivals_, 1U);
      unsigned arrived = 0;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(arrived) : "l"(arrivals_) : "memory");
      } while (static_cast<int>(arrived - arrivals_awaited_) < 0);
      __threadfence();
    }
    __syncthreads();
  }

  /// From the context to what the last layer says of the query.
  __device__ void ask() {
    const ContextTokens tokens(trial_, network_.compressed);
    tiles_ = {rank_, problem_.blocks_a_trial, trial_.first_new, tokens.length};
    layers_.take(tiles_);
    layers_.for_rows(0, tiles_.slots(), [&](int slot, int row) {
      embed(tokens, tiles_.first_token(slot) + row, layers_.row_of(slot, row));
    });
    __syncthreads();
    for (int layer = 0; layer < network_.layer_count; ++layer) {
      layers_.begin(layer);
      wait_for_trial();
      layers_.finish(layer);
    }
  }

  /// For one warp. After the last token there are zeros.
  __device__ void embed(const ContextTokens& tokens, int token, float* x) const {
    for (int column = lane_number(); column < network_.width; column += 32) {
      float value = 0;
      if (token < tokens.length) {
        value = embedded(tokens, token, column);
        if (network_.positions != nullptr)
          value += __ldg(network_.positions + token * network_.width + column);
      }
      x[column] = value;
    }
  }

  __device__ float embedded(const ContextTokens& tokens, int token, int column) const {
    const int width = network_.width;
    if (tokens.is_query(token)) {
      const int state = GpuGridWorld{task_, problem_.grid_size}.state_of(trial_.agent);
      return __ldg(network_.query + state * width + column);
    }
    if (tokens.is_start(token)) return __ldg(network_.region_start + column);
    if (tokens.is_end(token)) return __ldg(network_.region_end + column);
    const SeenTransition seen = ring_[(trial_.first + tokens.transition(token)) % kMostTokens];
    const float* weight = network_.transition + column;
    return __ldg(network_.transition_bias + column) + seen.x * __ldg(weight) +
           seen.y * __ldg(weight + width) + __ldg(weight + (2 + seen.action) * width) +
           seen.reward * __ldg(weight + 7 * width) + seen.next_x * __ldg(weight + 8 * width) +
           seen.next_y * __ldg(weight + 9 * width);
  }

  /// The query's logits. A warp an output.
  __device__ void judge() const {
    const int output = warp_number();
    const float* x = layers_.row_of_query();
    if (output < network_.outputs) {
      float sum = 0;
      for (int column = lane_number(); column < network_.width; column += 32) {
        sum += x[column] * __ldg(network_.head + output * network_.width + column);
      }
      sum = sum_of_warp(sum);
      if (lane_number() == 0) logits_[output] = sum + __ldg(network_.head_bias + output);
    }
    __syncthreads();
  }

  /// Closes the region or acts. For one warp.
  __device__ void answer(int step) const {
    const bool first_time = trial_.ask_again == 0;
    if (network_.compressed && first_time && region_ends()) {
      __syncwarp();
      if (lane_number() == 0) close_region();
      return;
    }
    const int action = choose();
    __syncwarp();
    if (lane_number() == 0) act(action, step);
  }

  __device__ bool region_ends() const {
    const float* types = logits_ + kActions;
    const bool emitted = types[kEndOfRegion] > types[0] && types[kEndOfRegion] > types[1];
    return trial_.current == problem_.region || (emitted && trial_.current > 0);
  }
  __device__ void close_region() const {
    trial_.first = (trial_.first + trial_.previous) % kMostTokens;
    trial_.previous = trial_.current;
    trial_.current = 0;
    trial_.first_new = 0;
    trial_.ask_again = 1;
  }

  /// As ActionChooser does. For one warp.
  __device__ int choose() const {
    double highest = logits_[0];
    int best = 0;
    for (int action = 1; action < kActions; ++action) {
      if (logits_[action] > highest) {
        highest = logits_[action];
        best = action;
      }
    }
    if (problem_.greedy) return best;
    const double mine = lane_number() < kActions
                            ? exp((logits_[lane_number()] - highest) / problem_.temperature)
                            : 0;  // a lane an action
    double weights[kActions], total = 0, below = 0;
    for (int action = 0; action < kActions; ++action) {
      weights[action] = __shfl_sync(~0U, mine, action);
      total += weights[action];
    }
    RandomStream random(task_.seed, trial_.draws);
    const double drawn = random.uniform() * total;
    for (int action = 0; action + 1 < kActions; ++action) {
      below += weights[action];
      if (drawn < below) return action;
    }
    return kActions - 1;
  }

  __device__ void act(int action, int step) const {
    note_logits();
    trial_.ask_again = 0;
    ++trial_.draws;
    const GpuGridWorld room{task_, problem_.grid_size};
    const GpuAgent before = trial_.agent;
    GpuAgent agent = before;
    const int reward = room.step(agent, action);
    trial_.earned = (step == 0 ? 0 : trial_.earned) + static_cast<float>(reward);
    const GpuAgent reached = agent;
    if (step + 1 == problem_.horizon) agent = first_agent(task_);
    trial_.agent = agent;
    const GpuAgent next = problem_.terminal_observation ? reached : agent;
    ring_[(trial_.first + trial_.previous + trial_.current) % kMostTokens] = {
        before.x, before.y, static_cast<uint8_t>(action), static_cast<uint8_t>(reward), next.x, next.y};
    remember();
    if (problem_.forget_unrewarded > 0) forget_if_unrewarded(reward != 0, step + 1 == problem_.horizon);
  }

  __device__ void note_logits() const {
    for (int output = 0; trial_.broken == 0 && output < network_.outputs; ++output) {
      trial_.logits[output] = logits_[output];
    }
    for (int action = 0; action < kActions; ++action) {
      if (!isfinite(logits_[action])) trial_.broken = 1;
    }
  }

  __device__ void remember() const {
    if (!network_.compressed && trial_.current == problem_.region) {
      trial_.first = (trial_.first + 1) % kMostTokens;
      trial_.first_new = 0;
      return;
    }
    trial_.first_new = tiles_.length - 1;  // where the query stood; the next query comes after it
    ++trial_.current;
  }

  /// As SlidingContext does.
  __device__ void forget_if_unrewarded(bool rewarded, bool ended) const {
    if (rewarded) {
      trial_.steps_unrewarded = 0;
      trial_.episodes_unrewarded = ended ? 0 : -1;
      return;
    }
    ++trial_.steps_unrewarded;
    if (!ended) return;
    ++trial_.episodes_unrewarded;
    if (trial_.episodes_unrewarded < problem_.forget_unrewarded || trial_.steps_unrewarded < trial_.current) {
      return;
    }
    trial_.current = trial_.first_new = 0;
    trial_.steps_unrewarded = trial_.episodes_unrewarded = 0;
  }

  const RolloutNetwork& network_;
  const RolloutProblem& problem_;
  int rank_;  ///< among the trial's blocks
  RolloutTrial& memory_of_trial_;
  SeenTransition* ring_;
  unsigned* arrivals_;
  unsigned arrivals_awaited_ = 0;
  RolloutTrial& trial_;  ///< in shared memory, like the following two
  GpuTask& task_;
  float* logits_;
  Layers<kHeadSize> layers_;
  TilesOfBlock tiles_ = {};
};

template <int kHeadSize>
__global__ void __launch_bounds__(kThreads, 1)
    run_episode(const __grid_constant__ RolloutNetwork network,
                const __grid_constant__ RolloutProblem problem, const RolloutMemory memory) {
  extern __shared__ __align__(16) unsigned char shared[];
#if __CUDA_ARCH__ >= 800  // the first with products of bf16
  const LayersLayout layout(network, tiles_of_block(problem.most_tokens, problem.blocks_a_trial));
  const int trial = static_cast<int>(blockIdx.x) / problem.blocks_a_trial;
  TrialBlock<kHeadSize>(network, problem, memory.from(trial, network, problem.most_tokens), layout, shared)
      .run_episode();
#endif
}

using Kernel = void (*)(RolloutNetwork, RolloutProblem, RolloutMemory);

Kernel kernel_of(const RolloutNetwork& network) {
  switch (network.width / network.heads) {
    case 8:
      return run_episode<8>;
    case 16:
      return run_episode<16>;
    default:
      return run_episode<32>;
  }
}

int shared_bytes(const RolloutNetwork& network, int most_tokens, int blocks) {
  return LayersLayout(network, tiles_of_block(most_tokens, blocks)).total +
         static_cast<int>(sizeof(SharedTrial));
}

void launch_wave(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                 cudaStream_t stream) {
  const Kernel kernel = kernel_of(network);
  const int bytes = shared_bytes(network, problem.most_tokens, problem.blocks_a_trial);
  const dim3 blocks = static_cast<unsigned>(problem.trials * problem.blocks_a_trial);
  if (problem.blocks_a_trial > 1)
    return launch_at_once("the rollout kernel", kernel, blocks, kThreads, bytes, stream, network, problem,
                          memory);
  launch("the rollout kernel", kernel, blocks, kThreads, bytes, stream, network, problem, memory);
}

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

int blocks_a_trial(const RolloutNetwork& network, int trials, int most_tokens) {
  const bool able = attribute_of_device(cudaDevAttrComputeCapabilityMajor) >= 8 &&
                    attribute_of_device(cudaDevAttrCooperativeLaunch) != 0;
  if (!able) return 0;
  const int shared = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int tiles = divide_up(most_tokens, kTileRows);
  int fewest = 1;
  while (fewest < tiles && shared_bytes(network, most_tokens, fewest) > shared) ++fewest;
  if (shared_bytes(network, most_tokens, fewest) > shared) return 0;
  return std::clamp(attribute_of_device(cudaDevAttrMultiProcessorCount) / trials, fewest, tiles);
}

void launch_episode(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                    cudaStream_t stream) {
  check(cudaMemsetAsync(memory.arrivals, 0, sizeof(unsigned) * static_cast<size_t>(problem.trials), stream),
        "cudaMemsetAsync");
  // Blocks that wait for each other must all run at once, and one fills a multiprocessor.
  const int processors = attribute_of_device(cudaDevAttrMultiProcessorCount);
  const int at_once = problem.blocks_a_trial == 1 ? problem.trials : processors / problem.blocks_a_trial;
  for (int first = 0; first < problem.trials; first += at_once) {
    RolloutProblem wave = problem;
    wave.trials = std::min(at_once, problem.trials - first);
    launch_wave(network, wave, memory.from(first, network, problem.most_tokens), stream);
  }
}

}  // namespace adtrain::gpu
