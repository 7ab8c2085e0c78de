#include <algorithm>

#include "base/Cuda.h"
#include "base/Random.h"
#include "environments/GpuRoom.cuh"
#include "evaluation/gpu/RolloutKernel.h"
#include "evaluation/gpu/SplitAttention.cuh"

/// One launch runs one episode of every trial. A trial belongs to a cluster of thread blocks; its tokens are
/// cut into tiles of 16, tile i for block i mod cluster. A layer goes in two passes: queries, keys and values
/// of all new tokens, of which the blocks put keys and values into the GPU's memory for each other, then the
/// rest, two tiles at a time.
///
/// Keys and values stay valid as long as their tokens keep their places: while a context or a region grows, a
/// step computes its two new tokens alone. A full context that slides changes the place of every token (and
/// what the oldest one had told the others), so all are computed anew; so are they when a region is closed.
///
/// A block's shared memory:
///
///     x        its tiles' rows, fp32 (tiles · 16, width + 8)
///     queries  its tiles, each a SplitTile (width)
///     input    two SplitTiles (width): what the next product reads
///     hidden   two SplitTiles (inner)
///     parts    what the warps of a head have read of the keys that each of them took
///     trial    what is known of the trial, and its task; logits of the query
namespace adtrain::gpu {
namespace {

constexpr int kActions = 5;
constexpr int kEndOfRegion = 2;  ///< among the token types

__host__ __device__ constexpr int divide_up(int a, int b) {
  return (a + b - 1) / b;
}

/// A trial at hand.
struct SharedTrial {
  RolloutTrial trial;
  GpuTask task;
  float logits[kMostOutputs];
};

/// Where the parts of a block's shared memory begin, in bytes.
struct SharedLayout {
  int queries, input, hidden, parts, trial, total;

  __host__ __device__ SharedLayout(const RolloutNetwork& network, int tiles)
      : queries(tiles * kTileRows * (network.width + 8) * 4),
        input(queries + tiles * SplitTile::bytes(network.width)),
        hidden(input + kTilesAtOnce * SplitTile::bytes(network.width)),
        parts(hidden + kTilesAtOnce * SplitTile::bytes(network.inner)),
        trial(parts + kWarps * kTileRows * (network.width / network.heads + 2) * 4),
        total(trial + static_cast<int>(sizeof(SharedTrial))) {}
};

/// Copies words from one memory to another. For all threads.
template <class Value>
__device__ void copy_words(Value& to, const Value& from) {
  static_assert(sizeof(Value) % 4 == 0 && sizeof(Value) / 4 <= kThreads, "a thread a word");
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread >= static_cast<int>(sizeof(Value) / 4)) return;
  reinterpret_cast<uint32_t*>(&to)[thread] = reinterpret_cast<const uint32_t*>(&from)[thread];
}

/// What a context's tokens are: without regions transition … transition query; with them, <compress>
/// transition …
/// </compress> where there is a region before, then <compress> transition … query.
struct Sequence {
  int first_region;  ///< tokens of the region before
  int marker;        ///< tokens before the first transition of a region
  int previous, length;

  __device__ Sequence(const RolloutTrial& trial, bool compressed)
      : first_region(trial.previous > 0 ? trial.previous + 2 : 0),
        marker(compressed ? 1 : 0),
        previous(trial.previous),
        length(first_region + marker + trial.current + 1) {}

  __device__ bool is_query(int token) const { return token == length - 1; }
  __device__ bool is_start(int token) const {
    return marker == 1 && (token == first_region || (token == 0 && first_region > 0));
  }
  __device__ bool is_end(int token) const { return token == first_region - 1; }
  /// Which of the context's transitions a token is.
  __device__ int transition(int token) const {
    return token < first_region ? token - 1 : previous + token - first_region - marker;
  }
};

template <int kHeadSize>
class Block {
 public:
  __device__ Block(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                   unsigned char* shared)
      : Block(network, problem, memory, shared, static_cast<int>(blockIdx.x) / problem.blocks_a_trial,
              SharedLayout(network,
                           divide_up(divide_up(problem.most_tokens, kTileRows), problem.blocks_a_trial))) {}

  __device__ void run_episode() {
    copy_words(trial_, memory_of_trial_);
    __syncthreads();
    for (int step = 0; step < problem_.horizon; step += trial_.ask_again != 0 ? 0 : 1) {
      ask();
      if (owns_query()) {
        judge();
        if (warp() == 0) answer(step);
        __syncthreads();
        copy_words(memory_of_trial_, trial_);
      }
      wait_for_trial();
      copy_words(trial_, memory_of_trial_);
      __syncthreads();
    }
  }

 private:
  __device__ Block(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                   unsigned char* shared, int64_t trial, const SharedLayout& layout)
      : network_(network),
        problem_(problem),
        rank_(static_cast<int>(blockIdx.x) % problem.blocks_a_trial),
        most_tokens_(divide_up(problem.most_tokens, 16) * 16),
        memory_of_trial_(memory.trials[trial]),
        ring_(memory.transitions + trial * kMostTokens),
        arrivals_(memory.arrivals + trial),
        trial_(reinterpret_cast<SharedTrial*>(shared + layout.trial)->trial),
        task_(reinterpret_cast<SharedTrial*>(shared + layout.trial)->task),
        logits_(reinterpret_cast<SharedTrial*>(shared + layout.trial)->logits),
        x_(reinterpret_cast<float*>(shared)),
        queries_{shared + layout.queries, network.width},
        input_{shared + layout.input, network.width},
        hidden_{shared + layout.hidden, network.inner},
        parts_{reinterpret_cast<float*>(shared + layout.parts)} {
    const int64_t words = int64_t{network.heads} * most_tokens_ / 16 * 32 * network.layer_count;
    keys_ = memory.keys + trial * words * 2 * AttentionShape<kHeadSize>::kGroups;
    values_ = memory.values + trial * words * AttentionShape<kHeadSize>::kGroups;
    copy_words(task_, memory.tasks[trial]);
  }

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
      } while (arrived < arrivals_awaited_);
      __threadfence();
    }
    __syncthreads();
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  // Tiles are numbered twice: among all new ones of the trial, and in this block, where they are `slots`.
  __device__ int tiles() const { return divide_up(sequence_length_ - first_new_, kTileRows); }
  __device__ int slots() const { return divide_up(tiles() - rank_, problem_.blocks_a_trial); }
  __device__ int first_token(int slot) const {
    return first_new_ + (rank_ + slot * problem_.blocks_a_trial) * kTileRows;
  }
  __device__ bool owns_query() const { return (tiles() - 1) % problem_.blocks_a_trial == rank_; }
  __device__ float* row_of(int slot, int row) const {
    return x_ + (slot * kTileRows + row) * (network_.width + 8);
  }

  /// Calls `work(slot, row)` for the rows of the slots from `first` on: a warp a row.
  template <class Work>
  __device__ void for_rows(int first, int count, Work work) const {
    for (int i = warp(); i < count * kTileRows; i += kWarps) work(first + i / kTileRows, i % kTileRows);
  }

  /// From the context to what the last layer says of the query.
  __device__ void ask() {
    const Sequence sequence(trial_, network_.compressed);
    sequence_length_ = sequence.length;
    first_new_ = trial_.first_new;
    const int slots = this->slots();
    for_rows(0, slots, [&](int slot, int row) { embed(sequence, slot, row); });
    __syncthreads();
    for (int layer = 0; layer < network_.layer_count; ++layer) {
      const PackedLayer& weights = network_.layers[layer];
      const KeysAndValues<kHeadSize> memory = memory_of(layer);
      for (int first = 0; first < slots; first += kTilesAtOnce) {
        begin_layer(weights, memory, first, min(kTilesAtOnce, slots - first));
      }
      wait_for_trial();
      if (layer + 1 == network_.layer_count) {  // of which nothing but the query is read
        if (owns_query()) finish_layer(weights, memory, slots - 1, 1);
        break;
      }
      for (int first = 0; first < slots; first += kTilesAtOnce) {
        finish_layer(weights, memory, first, min(kTilesAtOnce, slots - first));
      }
    }
  }

  __device__ KeysAndValues<kHeadSize> memory_of(int layer) const {
    const int64_t words = int64_t{network_.heads} * most_tokens_ / 16 * 32 * layer;
    return {keys_ + words * 2 * AttentionShape<kHeadSize>::kGroups,
            values_ + words * AttentionShape<kHeadSize>::kGroups, most_tokens_};
  }

  __device__ void embed(const Sequence& sequence, int slot, int row) const {
    const int token = first_token(slot) + row;
    for (int column = lane(); column < network_.width; column += 32) {
      float value = 0;
      if (token < sequence.length) {
        value = embedded(sequence, token, column);
        if (network_.positions != nullptr)
          value += __ldg(network_.positions + token * network_.width + column);
      }
      row_of(slot, row)[column] = value;
    }
  }

  __device__ float embedded(const Sequence& sequence, int token, int column) const {
    const int width = network_.width;
    if (sequence.is_query(token)) {
      const int state = trial_.agent.x * problem_.grid_size + trial_.agent.y;
      return __ldg(network_.query + state * width + column);
    }
    if (sequence.is_start(token)) return __ldg(network_.region_start + column);
    if (sequence.is_end(token)) return __ldg(network_.region_end + column);
    const SeenTransition seen = ring_[(trial_.first + sequence.transition(token)) % kMostTokens];
    const float* weight = network_.transition + column;
    return __ldg(network_.transition_bias + column) + seen.x * __ldg(weight) +
           seen.y * __ldg(weight + width) + __ldg(weight + (2 + seen.action) * width) +
           seen.reward * __ldg(weight + 7 * width) + seen.next_x * __ldg(weight + 8 * width) +
           seen.next_y * __ldg(weight + 9 * width);
  }

  /// Normalises rows into input_ and, with `in_place`, where they are.
  __device__ void normalise(const PackedNorm& norm, int first, int count, bool in_place) const {
    for_rows(first, count, [&](int slot, int row) {
      normalise_row(norm, row_of(slot, row), input_[slot - first], row, in_place);
    });
    __syncthreads();
  }

  __device__ void normalise_row(const PackedNorm& norm, float* x, const SplitTile& to, int row,
                                bool in_place) const {
    constexpr int kMostNumbers = 4;  // a lane's: 128 columns
    const int numbers = network_.width / 32;
    const bool is_layer_norm = norm.bias != nullptr;
    float values[kMostNumbers], sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < kMostNumbers; ++i) values[i] = i < numbers ? x[lane() + 32 * i] : 0;
    if (is_layer_norm) {
      for (const float value : values) sum += value;
      const float mean = sum_of_warp(sum) / static_cast<float>(network_.width);
#pragma unroll
      for (int i = 0; i < kMostNumbers; ++i) values[i] = i < numbers ? values[i] - mean : 0;
    }
    for (const float value : values) squares += value * value;
    const float factor = rsqrtf(sum_of_warp(squares) / static_cast<float>(network_.width) + 1e-5F);
#pragma unroll
    for (int i = 0; i < kMostNumbers; ++i) {
      if (i >= numbers) break;
      const int column = lane() + 32 * i;
      float value = values[i] * factor * __ldg(norm.weight + column);
      if (is_layer_norm) value += __ldg(norm.bias + column);
      if (in_place) x[column] = value;
      to.put(row, column, value);
    }
  }

  __device__ static float sum_of_warp(float value) {
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0U, value, distance);
    return value;
  }

  /// Puts into input_ what a layer reads.
  __device__ void take_input(const PackedLayer& weights, int first, int count) const {
    if (network_.pre_norm) {
      normalise(weights.norm_1, first, count, /*in_place=*/false);
      return;
    }
    for_rows(first, count, [&](int slot, int row) {
      for (int column = lane(); column < network_.width; column += 32) {
        input_[slot - first].put(row, column, row_of(slot, row)[column]);
      }
    });
    __syncthreads();
  }

  /// Turns two neighbouring numbers of a head by the token's angle.
  __device__ void turn(int token, int at, float2& numbers) const {
    if (network_.cosines == nullptr) return;
    const int pair = token * (kHeadSize / 2) + at / 2;
    const float cosine = __ldg(network_.cosines + pair), sine = __ldg(network_.sines + pair);
    numbers = {numbers.x * cosine - numbers.y * sine, numbers.y * cosine + numbers.x * sine};
  }

  /// Queries, keys and values.
  __device__ void begin_layer(const PackedLayer& weights, const KeysAndValues<kHeadSize>& memory, int first,
                              int count) const {
    take_input(weights, first, count);
    multiply(input_, count, weights.attention, [&](int tile, int column, PairOfRows numbers) {
      const int which = column < network_.width ? 0 : column < 2 * network_.width ? 1 : 2;
      column -= which * network_.width;
      if (which < 2) {
        put_queries_or_keys(memory, which == 1, first + tile, column, numbers);
      } else {
        put_values(memory, first_token(first + tile), column, numbers);
      }
    });
    __syncthreads();
  }

  __device__ void put_queries_or_keys(const KeysAndValues<kHeadSize>& memory, bool keys, int slot, int column,
                                      PairOfRows& numbers) const {
    const Lane lane;
    for (int side = 0; side < 2; ++side) {
      const int row = lane.row + 8 * side, token = first_token(slot) + row;
      if (token >= sequence_length_) break;
      float2& pair = numbers.rows[side];
      turn(token, column % kHeadSize, pair);
      if (keys) {
        memory.put_key(column / kHeadSize, token, column % kHeadSize, pair);
      } else {
        queries_[slot].put(row, column, pair.x, pair.y);
      }
    }
  }

  /// `column` is this lane's.
  __device__ void put_values(const KeysAndValues<kHeadSize>& memory, int first_token, int column,
                             PairOfRows& numbers) const {
    const Lane lane;
    const int head = column / kHeadSize, at = column % kHeadSize;
    const bool whole = first_token % 16 == 0;  // else there are two tokens
    for (int side = 0; side < 2; ++side) {
      const int token = first_token + lane.row + 8 * side;
      float2& pair = numbers.rows[side];
      if (token >= sequence_length_) {
        pair = {0, 0};  // what no token reads must still be a number
      } else if (!whole) {
        memory.put_value(head, token, at, pair.x);
        memory.put_value(head, token, at + 1, pair.y);
      }
    }
    if (whole) memory.put_values(lane, head, first_token, at, numbers);
  }

  /// Attention and MLP, each added to x.
  __device__ void finish_layer(const PackedLayer& weights, const KeysAndValues<kHeadSize>& memory, int first,
                               int count) const {
    const auto add = [&](int tile, int column, const PairOfRows& numbers) {
      for (int side = 0; side < 2; ++side) {
        auto& pair = *reinterpret_cast<float2*>(row_of(first + tile, Lane().row + 8 * side) + column);
        pair = {pair.x + numbers.rows[side].x, pair.y + numbers.rows[side].y};
      }
    };
    const auto tile_of = [&](int tile) {
      const int token = first_token(first + tile);
      return ReadingTile{queries_[first + tile], input_[tile], token,
                         min(token + kTileRows, sequence_length_) - 1};
    };
    attend<kHeadSize>(tile_of, count, memory, network_.heads, parts_);
    multiply(input_, count, weights.output, add);
    __syncthreads();
    normalise(network_.pre_norm ? weights.norm_2 : weights.norm_1, first, count,
              /*in_place=*/!network_.pre_norm);
    multiply(input_, count, weights.up, [&](int tile, int column, const PairOfRows& numbers) {
      for (int side = 0; side < 2; ++side)
        activate(hidden_[tile], Lane().row + 8 * side, column, numbers.rows[side]);
    });
    __syncthreads();
    multiply(hidden_, count, weights.down, add);
    __syncthreads();
    if (!network_.pre_norm) normalise(weights.norm_2, first, count, /*in_place=*/true);
  }

  __device__ void activate(const SplitTile& to, int row, int column, float2 pair) const {
    if (network_.pre_norm) {
      to.put(row, column / 2, pair.x / (1 + __expf(-pair.x)) * pair.y);
    } else {
      to.put(row, column, gelu(pair.x), gelu(pair.y));
    }
  }
  __device__ static float gelu(float x) {
    return 0.5F * x * (1 + erff(x * 0.70710678118654752F));
  }

  /// The query's logits. A warp an output.
  __device__ void judge() const {
    const int slot = slots() - 1, output = warp();
    const float* x = row_of(slot, sequence_length_ - 1 - first_token(slot));
    if (output < network_.outputs) {
      float sum = 0;
      for (int column = lane(); column < network_.width; column += 32) {
        sum += x[column] * __ldg(network_.head + output * network_.width + column);
      }
      sum = sum_of_warp(sum);
      if (lane() == 0) logits_[output] = sum + __ldg(network_.head_bias + output);
    }
    __syncthreads();
  }

  /// Closes the region or acts. For one warp.
  __device__ void answer(int step) const {
    const bool first_time = trial_.ask_again == 0;
    if (network_.compressed && first_time && region_ends()) {
      __syncwarp();
      if (lane() == 0) close_region();
      return;
    }
    const int action = choose();
    __syncwarp();
    if (lane() == 0) act(action, step);
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
    const double mine = lane() < kActions ? exp(logits_[lane()] - highest) : 0;  // a lane an action
    double weights[kActions], total = 0, below = 0;
    for (int action = 0; action < kActions; ++action) {
      weights[action] = __shfl_sync(~0U, mine, action);
      total += weights[action];
    }
    RandomStream random(trial_.seed, trial_.draws);
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
    const GpuRoom room{task_, problem_.grid_size};
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
  }

  __device__ void note_logits() const {
    for (int output = 0; trial_.broken == 0 && output < network_.outputs; ++output) {
      trial_.logits[output] = logits_[output];
    }
    for (int output = 0; output < network_.outputs; ++output) {
      if (!isfinite(logits_[output])) trial_.broken = 1;
    }
  }

  __device__ void remember() const {
    if (!network_.compressed && trial_.current == problem_.region) {
      trial_.first = (trial_.first + 1) % kMostTokens;
      trial_.first_new = 0;
      return;
    }
    trial_.first_new =
        sequence_length_ - 1;  // the transition stands where the query stood, the next query behind it
    ++trial_.current;
  }

  const RolloutNetwork& network_;
  const RolloutProblem& problem_;
  int rank_;  ///< among the trial's blocks
  int most_tokens_;
  RolloutTrial& memory_of_trial_;
  SeenTransition* ring_;
  unsigned* arrivals_;
  unsigned arrivals_awaited_ = 0;
  RolloutTrial& trial_;  ///< in shared memory, like what follows
  GpuTask& task_;
  float* logits_;
  float* x_;
  SplitTiles queries_, input_, hidden_;
  PartsOfHeads<kHeadSize> parts_;
  uint2* keys_;
  uint4* values_;
  int sequence_length_ = 0, first_new_ = 0;
};

template <int kHeadSize>
__global__ void __launch_bounds__(kThreads, 1)
    run_episode(const __grid_constant__ RolloutNetwork network,
                const __grid_constant__ RolloutProblem problem, const RolloutMemory memory) {
  extern __shared__ __align__(16) unsigned char shared[];
  Block<kHeadSize>(network, problem, memory, shared).run_episode();
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
  return SharedLayout(network, divide_up(divide_up(most_tokens, kTileRows), blocks)).total;
}

void launch_wave(const RolloutNetwork& network, const RolloutProblem& problem, const RolloutMemory& memory,
                 cudaStream_t stream) {
  const Kernel kernel = kernel_of(network);
  const int bytes = shared_bytes(network, problem.most_tokens, problem.blocks_a_trial);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(problem.trials * problem.blocks_a_trial);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = problem.blocks_a_trial > 1 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, network, problem, memory), "the launch of the rollout kernel");
}

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

RolloutMemory RolloutMemory::from(int trial, const RolloutNetwork& network, int most_tokens) const {
  return {tasks + trial,
          trials + trial,
          transitions + int64_t{trial} * kMostTokens,
          keys + trial * key_words(network, most_tokens),
          values + trial * value_words(network, most_tokens),
          arrivals + trial};
}

int64_t key_words(const RolloutNetwork& network, int most_tokens) {
  return 2 * value_words(network, most_tokens);  // half as long
}

int64_t value_words(const RolloutNetwork& network, int most_tokens) {
  const int groups = network.width / network.heads / 8;
  return int64_t{network.layer_count} * network.heads * divide_up(most_tokens, 16) * groups * 32;
}

int blocks_a_trial(const RolloutNetwork& network, int trials, int most_tokens) {
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
