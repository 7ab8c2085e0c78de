#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"

/// A thread block takes a share of a head's keys, the newest first. A lane loads 16 bytes, so that 4, 8 or 16
/// neighbouring lanes, a group, have a key, and a warp has 8, 4 or 2 keys at once. Each group keeps a running
/// maximum, a sum of weights and its lanes' features of the weighted values; they meet once, at the end.
/// Scores are exponents of 2.
///
/// Keys are counted by age: how many tokens came after them. The newest has age 0, and is read from where the
/// projection has written it, as other thread blocks may read the ring before it is there.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kBlocks = 8;  ///< resident on a multiprocessor: their loads hide the memory's latency
constexpr int kLoads = 4;   ///< keys of a group between two changes of the maximum: all are loaded at once
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLowest = -1e30f;  ///< below all scores; finite, so that differences are numbers

/// Groups of lanes.
template <int HeadSize>
struct Group {
  static constexpr int kLanes = HeadSize / kVectorWidth, kOfWarp = kWarp / kLanes;

  __device__ static int lane() { return threadIdx.x % kLanes; }
  __device__ static int in_warp() { return threadIdx.x % kWarp / kLanes; }
  __device__ static float sum(float value) {
#pragma unroll
    for (int apart = 1; apart < kLanes; apart *= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
    return value;
  }

 private:
  static constexpr unsigned kAllLanes = 0xffffffffU;
};

/// What some keys give a query: the weights' sum and the weighted values' are relative to 2^greatest.
struct Found {
  float greatest = kLowest, total = 0.0f;
  Floats values = {};

  __device__ void scale_to(float new_greatest) {
    const float factor = exp2_of(greatest - new_greatest);
    greatest = new_greatest;
    total *= factor;
#pragma unroll
    for (float& value : values.at) value *= factor;
  }
};

__device__ float product_of(const Floats& left, const Floats& right) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) sum = fmaf(left.at[i], right.at[i], sum);
  return sum;
}
/// The work of one thread.
template <class Short, int HeadSize>
class Decoding {
  using Lanes = Group<HeadSize>;

 public:
  static constexpr int kKeysAtOnce =
      kWarps * Lanes::kOfWarp;  ///< that a thread block loads by one instruction

  __device__ explicit Decoding(const DecodingAttention& job)
      : job_(job),
        ring_(static_cast<int>(blockIdx.x) / job.splits),
        split_(static_cast<int>(blockIdx.x) % job.splits),
        head_(ring_ % job.shape.heads) {
    const int64_t tokens = *job.tokens;
    newest_place_ = static_cast<int>((tokens - 1) % job.shape.window);
    kept_ = static_cast<int>(min(tokens, int64_t{job.shape.window}));
    const int64_t of_head = ring_ / job.shape.heads * job.stride + int64_t{head_} * HeadSize;
    own_ = of_head / kVectorWidth + Lanes::lane();
    query_ = unpacked<Short>(__ldg(static_cast<const Vector*>(job.query) + own_));
    const float factor = kLog2E * rsqrtf(static_cast<float>(HeadSize));
#pragma unroll
    for (float& feature : query_.at) feature *= factor;
    slope_ = job.shape.alibi ? alibi_slope(head_, job.shape.heads) : 0.0f;
  }

  __device__ void run() {
    const int read = job_.shape.alibi ? keys_that_count() : kept_;
    if (split_ == 0 && threadIdx.x < Lanes::kLanes) keep_newest();
    const int share = (read + job_.splits - 1) / job_.splits;
    const int whole = (share + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
    const int begin = split_ * whole, end = min(read, begin + whole);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    for (int first = begin + warp * Lanes::kOfWarp * kLoads; first < end; first += kKeysAtOnce * kLoads)
      attend(first, end);
    meet_groups();
    meet_warps(warp);
  }

 private:
  /// The lane's part of the newest token's key or value.
  __device__ Vector newest(const void* from) const {
    return __ldg(static_cast<const Vector*>(from) + own_);
  }
  /// Where the lane's part of the place of a ring is.
  __device__ int64_t place_of(int place) const {
    return (int64_t{ring_} * job_.shape.window + place) * Lanes::kLanes + Lanes::lane();
  }
  __device__ void keep_newest() const {
    static_cast<Vector*>(job_.keys)[place_of(newest_place_)] = newest(job_.key);
    static_cast<Vector*>(job_.values)[place_of(newest_place_)] = newest(job_.value);
  }

  /// How many keys are read, the newest ones. No score exceeds bound = |query| · the longest key, before the
  /// penalty. So the weights of age a and older, a geometric series, sum to less than
  ///
  ///     2^(bound − a · slope) / (1 − 2^−slope)
  ///
  /// which is at most 2^(newest's score − 26) from the age on that is found here. Lengths that are no numbers
  /// leave all keys to be read.
  __device__ int keys_that_count() const {
    constexpr float kRoundings = 1.0f + 1e-4f;
    const Floats key = unpacked<Short>(newest(job_.key));
    const float score = Lanes::sum(product_of(query_, key));
    const float query_norm = Lanes::sum(product_of(query_, query_));
    const unsigned key_norm = __float_as_uint(Lanes::sum(product_of(key, key)));
    // As whole numbers: NaN is the greatest, and stays.
    unsigned* const kept_norm = reinterpret_cast<unsigned*>(job_.key_norms + ring_);
    const float longest = __uint_as_float(max(__ldcg(kept_norm), key_norm));
    if (split_ == 0 && threadIdx.x == 0) atomicMax(kept_norm, key_norm);
    const float bound = kRoundings * sqrtf(query_norm * longest);
    const float age = (bound - score + kNegligible - __log2f(1.0f - exp2_of(-slope_))) / slope_;
    return age < static_cast<float>(kept_) ? min(kept_, static_cast<int>(age) + 1) : kept_;
  }

  /// The keys of a warp's groups from age `first` on, kLoads for each group, as far as they are below `end`.
  __device__ void attend(int first, int end) {
    Vector keys[kLoads], values[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      // Beyond the end the last key once more, without weight: its score harms no maximum.
      const int age = min(age_of(first, i), end - 1);
      const int place = newest_place_ - age;
      const int64_t from = age == 0 ? own_ : place_of(place < 0 ? place + job_.shape.window : place);
      keys[i] = __ldcs(static_cast<const Vector*>(age == 0 ? job_.key : job_.keys) + from);
      values[i] = __ldcs(static_cast<const Vector*>(age == 0 ? job_.value : job_.values) + from);
    }
    float scores[kLoads], greatest = found_.greatest;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float score = Lanes::sum(product_of(query_, unpacked<Short>(keys[i])));
      scores[i] = fmaf(-slope_, static_cast<float>(age_of(first, i)), score);
      greatest = fmaxf(greatest, scores[i]);
    }
    found_.scale_to(greatest);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float weight = age_of(first, i) < end ? exp2_of(scores[i] - greatest) : 0.0f;
      found_.total += weight;
      const Floats value = unpacked<Short>(values[i]);
#pragma unroll
      for (int j = 0; j < kVectorWidth; ++j)
        found_.values.at[j] = fmaf(weight, value.at[j], found_.values.at[j]);
    }
  }
  __device__ static int age_of(int first, int load) {
    return first + Lanes::kOfWarp * load + Lanes::in_warp();
  }

  /// Adds up what the groups of the warp found, in every lane.
  __device__ void meet_groups() {
    constexpr unsigned kAllLanes = 0xffffffffU;
    float greatest = found_.greatest;
#pragma unroll
    for (int apart = Lanes::kLanes; apart < kWarp; apart *= 2)
      greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, apart));
    found_.scale_to(greatest);
#pragma unroll
    for (int apart = Lanes::kLanes; apart < kWarp; apart *= 2) {
      found_.total += __shfl_xor_sync(kAllLanes, found_.total, apart);
#pragma unroll
      for (float& value : found_.values.at) value += __shfl_xor_sync(kAllLanes, value, apart);
    }
  }

  /// Adds up what the warps found, and stores it: a thread has a feature.
  __device__ void meet_warps(int warp) const {
    __shared__ float values[kWarps][HeadSize], totals[kWarps], maxima[kWarps];
    if (Lanes::in_warp() == 0) {
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i)
        values[warp][kVectorWidth * Lanes::lane() + i] = found_.values.at[i];
    }
    if (threadIdx.x % kWarp == 0) {
      totals[warp] = found_.total;
      maxima[warp] = found_.greatest;
    }
    __syncthreads();
    const int feature = static_cast<int>(threadIdx.x);
    if (feature >= HeadSize) return;
    float greatest = maxima[0];
#pragma unroll
    for (int other = 1; other < kWarps; ++other) greatest = fmaxf(greatest, maxima[other]);
    float total = 0.0f, value = 0.0f;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
      const float factor = exp2_of(maxima[other] - greatest);
      total = fmaf(factor, totals[other], total);
      value = fmaf(factor, values[other][feature], value);
    }
    if (job_.splits == 1) {
      static_cast<Short*>(job_.output)[int64_t{ring_} * HeadSize + feature] = rounded<Short>(value / total);
      return;
    }
    float* const part = job_.parts + (int64_t{ring_} * job_.splits + split_) * (HeadSize + 2);
    part[feature] = value;
    if (feature == 0) {
      part[HeadSize] = greatest;
      part[HeadSize + 1] = total;
    }
  }

  const DecodingAttention& job_;
  const int ring_, split_, head_;
  int newest_place_, kept_;
  int64_t own_;   ///< the lane's vector of the newest token
  Floats query_;  ///< the lane's features, scaled
  float slope_;   ///< 0 without ALiBi
  Found found_;
};

template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreads, kBlocks)
    decoding_kernel(const __grid_constant__ DecodingAttention job) {
  let_next_kernel_start();
  Decoding<Short, HeadSize>(job).run();
}

/// Adds up what the thread blocks of each head found: a thread has a feature.
template <class Short, int HeadSize>
__global__ void __launch_bounds__(kThreads)
    merge_decoded_kernel(const __grid_constant__ DecodingAttention job) {
  let_next_kernel_start();
  constexpr int kRings = kThreads / HeadSize;  // of a thread block
  const int feature = static_cast<int>(threadIdx.x) % HeadSize;
  const int64_t ring = int64_t{blockIdx.x} * kRings + threadIdx.x / HeadSize;
  if (ring >= job.shape.rings()) return;
  const float* const parts = job.parts + ring * job.splits * (HeadSize + 2);
  const auto part = [&](int split) { return parts + split * (HeadSize + 2); };
  float greatest = kLowest;
  for (int split = 0; split < job.splits; ++split) greatest = fmaxf(greatest, part(split)[HeadSize]);
  float total = 0.0f, value = 0.0f;
  for (int split = 0; split < job.splits; ++split) {
    const float factor = exp2_of(part(split)[HeadSize] - greatest);
    total = fmaf(factor, part(split)[HeadSize + 1], total);
    value = fmaf(factor, part(split)[feature], value);
  }
  static_cast<Short*>(job.output)[ring * HeadSize + feature] = rounded<Short>(value / total);
}

template <class Short, int HeadSize>
void launch(const DecodingAttention& job, cudaStream_t stream) {
  const int64_t rings = job.shape.rings();
  gpu::launch("decoding_kernel", decoding_kernel<Short, HeadSize>, static_cast<unsigned>(rings * job.splits),
              kThreads, 0, stream, job);
  if (job.splits == 1) return;
  constexpr int kRings = kThreads / HeadSize;
  gpu::launch("merge_decoded_kernel", merge_decoded_kernel<Short, HeadSize>,
              static_cast<unsigned>((rings + kRings - 1) / kRings), kThreads, 0, stream, job);
}

}  // namespace

void decoding_attention(const DecodingAttention& attention, cudaStream_t stream) {
  with_type(attention.shape.type, [&](auto type) {
    using Short = decltype(type);
    switch (attention.shape.head_size) {
      case 32:
        return launch<Short, 32>(attention, stream);
      case 64:
        return launch<Short, 64>(attention, stream);
      default:
        return launch<Short, 128>(attention, stream);
    }
  });
}

}  // namespace adtrain::kernels
