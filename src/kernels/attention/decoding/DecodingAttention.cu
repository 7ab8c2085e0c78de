#include <cmath>

#include "base/Launch.cuh"
#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/attention/decoding/DecodingMemory.cuh"
#include "kernels/norm/HeadNorm.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"

/// A thread block takes a share of a head's keys, the newest first. A lane loads 16 bytes, so that 4, 8 or 16
/// neighbouring lanes, a group, have a key, and a warp has 8, 4 or 2 keys at once. Each group keeps a running
/// maximum, a sum of weights and its lanes' features of the weighted values; they meet once, at the end.
/// Scores are exponents of 2. One warp norms the newest token's query and key and finds how many keys are to
/// be read, while the others load their first keys: with few heads it is latency that counts. Where several
/// thread blocks share a head, the last of them to end adds up what all have found, in their order. As many
/// take part as there are chunks of keys to be read.
///
/// Keys are counted by age: how many tokens came after them. The newest has age 0, and is read from where the
/// projection has written it, as other thread blocks may read the ring before it is there.
namespace adtrain::kernels {
namespace {

constexpr int kLoads = 4;  ///< keys of a group between two changes of the maximum: all are loaded at once

/// The work of one thread, in a thread block of so many warps.
template <class Short, int HeadSize, int kWarps>
class Decoding {
  using Lanes = HeadLanes<HeadSize>;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kGroups = kWarp / Lanes::kCount;                              ///< of a warp
  static constexpr int kWarpChunk = kGroups * kLoads, kChunk = kWarps * kWarpChunk;  ///< keys at once
  /// Keys for which there is another split: to read as many takes as long as for splits to meet.
  static constexpr int kOfSplit = 4 * kChunk;

 public:
  using Memory = DecodingMemory<HeadSize, kWarps>;

  __device__ Decoding(const DecodingAttention& job, Memory& memory)
      : job_(job),
        memory_(memory),
        ring_(static_cast<int>(blockIdx.x) / job.splits),
        split_(static_cast<int>(blockIdx.x) % job.splits),
        head_(ring_ % job.shape.heads),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        own_((ring_ / job.shape.heads * job.stride + int64_t{head_} * HeadSize) / kVectorWidth + lane()) {
    if (!job.shape.alibi) return;
    slope_ = alibi_slope(head_, job.shape.heads);
    ages_of_exponent_ = 1.0f / slope_;
    exponents_of_all_ = kNegligible - __log2f(1.0f - exp2_of(-slope_));
  }

  /// What needs no newest token, and with `few` heads brings the first chunks into the L2 cache. The kernels
  /// ahead may not have ended: the count of tokens may be an older one, and no value is used.
  __device__ void prepare() {
    count_tokens();
    if (takes_newest()) norm_ = parameters(of_key() ? job_.norms.key : job_.norms.query);
    const int splits = splits_of(kept_);
    if (!job_.few || split_ >= splits) return;
    const int end = min(kept_, splits * kOfSplit);
    for (int first = split_ * kChunk; first < end; first += splits * kChunk) prefetch_chunk(first);
  }

  /// Once the kernels ahead have ended.
  __device__ void run() {
    Newest newest = {};
    if (takes_newest()) newest = load_newest();
    count_tokens();
    if (split_ >= splits_of(kept_)) return;
    if (takes_newest()) take(newest);
    int first = split_ * kChunk + warp_ * kWarpChunk;
    load(first, kept_);
    __syncthreads();
    const int read = memory_.read;
    const int splits = splits_of(read);
    if (split_ >= splits) return;
    take_query();
    if (first < read) {
      clear(first, read);
      attend(first, read);
      for (first += splits * kChunk; first < read; first += splits * kChunk) {
        load(first, read);
        attend(first, read);
      }
      meet_groups();
    }
    meet_warps(min(kWarps, (read - split_ * kChunk + kWarpChunk - 1) / kWarpChunk), splits);
  }

 private:
  /// The lane's place in its group, and the group's in the warp.
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Lanes::kCount; }
  __device__ static int group() { return static_cast<int>(threadIdx.x) % kWarp / Lanes::kCount; }
  /// Of the warp that takes the newest token, the first group has its query and the second one its key. It is
  /// the last warp, which has no keys to load while contexts are short.
  __device__ bool takes_newest() const { return warp_ == kWarps - 1; }
  __device__ static bool of_key() { return group() == 1; }

  /// The keys from age `first` on, and their values.
  __device__ void prefetch_chunk(int first) const {
    constexpr int kLine = 128, kOfKey = HeadSize * static_cast<int>(sizeof(Short)),
                  kLines = kChunk * kOfKey / kLine;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kLines; i += kThreads) {
      const int byte = i % kLines * kLine, age = first + byte / kOfKey;
      if (age >= kept_) continue;
      const char* const rings = static_cast<const char*>(i < kLines ? job_.keys : job_.values);
      prefetch(rings + (int64_t{ring_} * job_.shape.window + place_of_age(age)) * kOfKey + byte % kOfKey);
    }
  }
  /// Does nothing where the count is still the same.
  __device__ void count_tokens() {
    const int64_t tokens = __ldcg(job_.tokens);
    if (tokens == tokens_) return;
    tokens_ = tokens;
    newest_place_ = static_cast<int>((tokens - 1) % job_.shape.window);
    kept_ = static_cast<int>(min(tokens, int64_t{job_.shape.window}));
  }
  /// How many thread blocks share so many keys.
  __device__ int splits_of(int keys) const { return min(job_.splits, (keys + kOfSplit - 1) / kOfSplit); }

  /// What is loaded of the newest token, and with ALiBi the ring's key_norms, as bits.
  struct Newest {
    Vector own, value;  ///< own: of the query or the key
    unsigned kept_norm;
  };
  __device__ Newest load_newest() const {
    return {newest(of_key() ? job_.key : job_.query), newest(job_.value),
            job_.shape.alibi ? __ldcg(norm_of_ring()) : 0};
  }
  /// Norms query and key, finds how many keys are read, and keeps key and value.
  __device__ void take(const Newest& newest) {
    Vector own = newest.own;
    if (job_.norms.query.weight != nullptr) own = normed(own);
    if (group() == 0) memory_.query[lane()] = own;
    if (of_key()) memory_.newest_key[lane()] = own;
    const int read = job_.shape.alibi ? keys_that_count(unpacked<Short>(own), newest.kept_norm) : kept_;
    if (threadIdx.x % kWarp == 0) memory_.read = read;
    if (split_ == 0 && of_key()) {
      static_cast<Vector*>(job_.keys)[place_of(newest_place_)] = own;
      static_cast<Vector*>(job_.values)[place_of(newest_place_)] = newest.value;
    }
  }
  __device__ void take_query() { query_ = scaled(unpacked<Short>(memory_.query[lane()])); }
  /// A query whose products with keys are exponents of 2.
  __device__ static Floats scaled(Floats query) {
    const float factor = kLog2E * rsqrtf(static_cast<float>(HeadSize));
#pragma unroll
    for (float& feature : query.at) feature *= factor;
    return query;
  }

  /// The lane's parameters of a norm: constant, so that they are loaded before the newest token is there.
  struct NormParameters {
    Vector weight, bias;
  };
  __device__ static NormParameters parameters(const HeadNormVectors& norm) {
    NormParameters found = {};
    if (norm.weight != nullptr) found.weight = __ldg(norm.weight + lane());
    if (norm.bias != nullptr) found.bias = __ldg(norm.bias + lane());
    return found;
  }
  __device__ Vector normed(const Vector& x) const {
    const Floats weight = unpacked<Short>(norm_.weight), bias = unpacked<Short>(norm_.bias);
    if (job_.norms.query.bias == nullptr)
      return normed_head<Short, HeadSize, false>(x, weight, bias, job_.norms.epsilon);
    return normed_head<Short, HeadSize, true>(x, weight, bias, job_.norms.epsilon);
  }

  /// The lane's part of the newest token's query, key or value, as the projection has written it.
  __device__ Vector newest(const void* from) const {
    return __ldcg(static_cast<const Vector*>(from) + own_);
  }
  __device__ int place_of_age(int age) const {
    const int place = newest_place_ - age;
    return place < 0 ? place + job_.shape.window : place;
  }
  /// Where the lane's part of the place of a ring is.
  __device__ int64_t place_of(int place) const {
    return (int64_t{ring_} * job_.shape.window + place) * Lanes::kCount + lane();
  }
  /// How many keys are read, the newest ones. No score exceeds bound = |query| · the longest key, before the
  /// penalty. So the weights of age a and older, a geometric series, sum to less than
  ///
  ///     2^(bound − a · slope) / (1 − 2^−slope)
  ///
  /// which is at most 2^(newest's score − 26) from the age on that is found here. Lengths that are no numbers
  /// leave all keys to be read.
  ///
  /// `own`: the lane's part of the query or of the key.
  __device__ int keys_that_count(const Floats& own, unsigned kept_norm) const {
    constexpr float kRoundings = 1.0f + 1e-4f;
    const Floats factors = of_key() ? own : scaled(own);
    float score = 0.0f;  // in the query's lanes
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i)
      score = fmaf(factors.at[i], __shfl_xor_sync(kAllLanes, factors.at[i], Lanes::kCount), score);
    score = Lanes::sum(score);
    const float norm = Lanes::sum(product_of(factors, factors));
    const float key_norm = __shfl_xor_sync(kAllLanes, norm, Lanes::kCount);
    // As whole numbers: NaN is the greatest, and stays.
    const float longest = __uint_as_float(max(kept_norm, __float_as_uint(key_norm)));
    if (split_ == 0 && threadIdx.x % kWarp == 0) atomicMax(norm_of_ring(), __float_as_uint(key_norm));
    const float bound = kRoundings * sqrtf(norm * longest);
    const float age = (bound - score + exponents_of_all_) * ages_of_exponent_;
    return age < static_cast<float>(kept_) ? min(kept_, static_cast<int>(age) + 1) : kept_;
  }

  __device__ unsigned* norm_of_ring() const {
    return reinterpret_cast<unsigned*>(job_.key_norms + ring_);
  }

  /// Starts to load the keys of a warp's groups from age `first` on, kLoads for each group, as far as they
  /// are below `end`.
  __device__ void load(int first, int end) {
    if (first >= end) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int age = min(age_of(first, i), end - 1);  // beyond the end the last key once more
      const int64_t from = age == 0 ? own_ : place_of(place_of_age(age));
      keys_[i] = __ldcs(static_cast<const Vector*>(age == 0 ? job_.key : job_.keys) + from);
      values_[i] = __ldcs(static_cast<const Vector*>(age == 0 ? job_.value : job_.values) + from);
    }
  }
  /// Clears what was loaded of keys that are not to be read after all, as there may be no numbers in them.
  __device__ void clear(int first, int end) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (age_of(first, i) >= end) keys_[i] = values_[i] = {0, 0, 0, 0};
    }
  }
  /// Adds the keys that were loaded. Those from `end` on have no weight, and their scores harm no maximum.
  __device__ void attend(int first, int end) {
    if (first == 0 && group() == 0) keys_[0] = memory_.newest_key[lane()];
    float scores[kLoads], greatest = found_.greatest;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float score = Lanes::sum(product_of(query_, unpacked<Short>(keys_[i])));
      const auto age = static_cast<float>(age_of(first, i));
      scores[i] = age_of(first, i) < end ? fmaf(-slope_, age, score) : kLowest;
      greatest = fmaxf(greatest, scores[i]);
    }
    found_.scale_to(greatest);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float weight = age_of(first, i) < end ? exp2_of(scores[i] - greatest) : 0.0f;
      found_.total += weight;
      const Floats value = unpacked<Short>(values_[i]);
#pragma unroll
      for (int j = 0; j < kVectorWidth; ++j)
        found_.values.at[j] = fmaf(weight, value.at[j], found_.values.at[j]);
    }
  }
  __device__ static int age_of(int first, int load) {
    return first + kGroups * load + group();
  }

  /// Adds up what the groups of the warp found, in every lane.
  __device__ void meet_groups() {
    float greatest = found_.greatest;
#pragma unroll
    for (int apart = Lanes::kCount; apart < kWarp; apart *= 2)
      greatest = fmaxf(greatest, __shfl_xor_sync(kAllLanes, greatest, apart));
    found_.scale_to(greatest);
#pragma unroll
    for (int apart = Lanes::kCount; apart < kWarp; apart *= 2) {
      found_.total += __shfl_xor_sync(kAllLanes, found_.total, apart);
#pragma unroll
      for (float& value : found_.values.at) value += __shfl_xor_sync(kAllLanes, value, apart);
    }
  }

  /// Adds up what the first `warps` warps found, and stores it: a thread has a feature.
  __device__ void meet_warps(int warps, int splits) const {
    if (warp_ < warps && group() == 0) {
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i)
        memory_.values[warp_][kVectorWidth * lane() + i] = found_.values.at[i];
    }
    if (threadIdx.x % kWarp == 0) {
      memory_.totals[warp_] = found_.total;
      memory_.maxima[warp_] = found_.greatest;
    }
    __syncthreads();
    const int feature = static_cast<int>(threadIdx.x);
    float total = 0.0f, value = 0.0f, greatest = kLowest;
    if (feature < HeadSize) {
#pragma unroll 4
      for (int other = 0; other < warps; ++other) greatest = fmaxf(greatest, memory_.maxima[other]);
#pragma unroll 4
      for (int other = 0; other < warps; ++other) {
        const float factor = exp2_of(memory_.maxima[other] - greatest);
        total = fmaf(factor, memory_.totals[other], total);
        value = fmaf(factor, memory_.values[other][feature], value);
      }
    }
    if (splits == 1) return store(feature, value / total);
    if (feature < HeadSize) {
      float* const part = part_of(split_);
      part[feature] = value;
      if (feature == 0) {
        part[HeadSize] = greatest;
        part[HeadSize + 1] = total;
      }
    }
    if (is_last_of(splits)) add_up(splits, feature);
  }

  __device__ void store(int feature, float value) const {
    if (feature < HeadSize)
      static_cast<Short*>(job_.output)[int64_t{ring_} * HeadSize + feature] = rounded<Short>(value);
  }
  __device__ float* part_of(int split) const {
    return job_.parts + (int64_t{ring_} * job_.splits + split) * (HeadSize + 2);
  }

  /// Whether all other thread blocks of the ring have stored their parts, which are visible then.
  __device__ bool is_last_of(int splits) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned last = static_cast<unsigned>(splits) - 1;
      memory_.is_last = atomicInc(job_.arrivals + ring_, last) == last ? 1 : 0;
      __threadfence();
    }
    __syncthreads();
    return memory_.is_last != 0;
  }
  __device__ void add_up(int splits, int feature) const {
    if (feature >= HeadSize) return;
    float greatest_of_all = kLowest, total_of_all = 0.0f, sum = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) {
      const float* const part = part_of(split);
      const float value = __ldcg(part + feature), greatest = __ldcg(part + HeadSize),
                  total = __ldcg(part + HeadSize + 1);
      const float new_greatest = fmaxf(greatest_of_all, greatest);
      const float kept = exp2_of(greatest_of_all - new_greatest), added = exp2_of(greatest - new_greatest);
      greatest_of_all = new_greatest;
      total_of_all = fmaf(added, total, kept * total_of_all);
      sum = fmaf(added, value, kept * sum);
    }
    store(feature, sum / total_of_all);
  }

  const DecodingAttention& job_;
  Memory& memory_;
  const int ring_, split_, head_, warp_;
  const int64_t own_;    ///< the lane's vector of the newest token
  NormParameters norm_;  ///< of the warp that takes the newest token
  int64_t tokens_ = -1;  ///< of which these two follow
  int newest_place_, kept_;
  Vector keys_[kLoads], values_[kLoads];
  Floats query_;        ///< the lane's features, scaled
  float slope_ = 0.0f;  ///< 0 without ALiBi, and these two only with it
  float ages_of_exponent_ = 0.0f, exponents_of_all_ = 0.0f;
  Found found_;
};

/// At most 64 registers a thread: loads of many threads hide the memory's latency.
template <class Short, int HeadSize, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 32 / kWarps)
    decoding_kernel(const __grid_constant__ DecodingAttention job) {
  __shared__ DecodingMemory<HeadSize, kWarps> memory;
  let_next_kernel_start();
  Decoding<Short, HeadSize, kWarps> decoding(job, memory);
  decoding.prepare();
  await_kernels_ahead();
  decoding.run();
}

template <class Short, int HeadSize, int kWarps>
void launch(const DecodingAttention& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(job.shape.rings() * job.splits);
  const auto kernel = decoding_kernel<Short, HeadSize, kWarps>;
  constexpr int kThreads = kWarps * kWarp;
  launch_early("decoding_kernel", kernel, blocks, kThreads, 0, stream, job);
}

/// Of few heads a thread block of many warps takes all keys of one, up to a length.
template <class Short, int HeadSize>
void launch(const DecodingAttention& job, cudaStream_t stream) {
  constexpr int kMany = 16, kFew = 4;
  if (job.few) return launch<Short, HeadSize, kMany>(job, stream);
  launch<Short, HeadSize, kFew>(job, stream);
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
