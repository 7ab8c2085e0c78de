#pragma once

#include <type_traits>

#include "kernels/attention/AlibiSlope.cuh"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/norm/HeadNorm.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {

constexpr float kLowest = -1e30f;  ///< below all scores; finite, so that differences are numbers
constexpr int kLoads = 4;  ///< keys of a group between two changes of the maximum: all are loaded at once

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

__device__ inline float product_of(const Floats& left, const Floats& right) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorWidth; ++i) sum = fmaf(left.at[i], right.at[i], sum);
  return sum;
}

/// A head's newest token, in shared memory: its query and key are normed once a warp has taken it.
template <int HeadSize>
struct NewestToken {
  Vector query[HeadLanes<HeadSize>::kCount], key[HeadLanes<HeadSize>::kCount],
      value[HeadLanes<HeadSize>::kCount];
  int read;  ///< how many keys are read, the newest ones
};

/// What a warp does for one head's query. A lane loads 16 bytes, so that 4, 8 or 16 neighbouring lanes, a
/// group, have a key, and a warp has 8, 4 or 2 keys at once. Each group keeps a running maximum, a sum of
/// weights and its lanes' features of the weighted values; they meet once, at the end. Scores are exponents
/// of 2.
///
/// Keys are counted by age: how many tokens came after them. The newest has age 0, and is read from shared
/// memory, as other thread blocks may read the ring before it is there.
template <class Short, int HeadSize>
class DecodingHead {
  using Lanes = HeadLanes<HeadSize>;
  static constexpr int kGroups = kWarp / Lanes::kCount;  ///< of a warp

 public:
  using Token = NewestToken<HeadSize>;
  static constexpr int kKeys = kGroups * kLoads;  ///< of a warp at once

  /// `ring`: sequence · heads + head.
  __device__ DecodingHead(const DecodingAttention& job, int ring) : job_(job), ring_(ring) {
    if (!job.shape.alibi) return;
    slope_ = alibi_slope(ring % job.shape.heads, job.shape.heads);
    ages_of_exponent_ = 1.0f / slope_;
    exponents_of_all_ = kNegligible - __log2f(1.0f - exp2_of(-slope_));
  }

  /// The lane's place in its group, and the group's in the warp.
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % Lanes::kCount; }
  __device__ static int group() { return static_cast<int>(threadIdx.x) % kWarp / Lanes::kCount; }
  /// Of the warp that takes the newest token, the first group has its query and the second one its key.
  __device__ static bool of_key() { return group() == 1; }

  /// Does nothing where the count is still the same.
  __device__ void count_tokens() {
    const int64_t tokens = __ldcg(job_.tokens);
    if (tokens == tokens_) return;
    tokens_ = tokens;
    newest_place_ = static_cast<int>((tokens - 1) % job_.shape.window);
    count_ = static_cast<int>(min(tokens, int64_t{job_.shape.window}));
  }
  /// How many keys are kept, with the newest one.
  __device__ int count() const { return count_; }

  /// Brings the warp's kKeys keys from age `first` on into the L2 cache, and their values: a line a lane.
  __device__ void prefetch_keys(int first) const {
    constexpr int kLine = 128, kOfKey = HeadSize * static_cast<int>(sizeof(Short));
    static_assert(2 * kKeys * kOfKey == kWarp * kLine);
    const int thread = static_cast<int>(threadIdx.x) % kWarp, byte = thread % (kWarp / 2) * kLine,
              age = first + byte / kOfKey;
    if (age >= count_) return;
    const auto* const rings = static_cast<const char*>(thread < kWarp / 2 ? job_.keys : job_.values);
    prefetch(rings + (int64_t{ring_} * job_.shape.window + place_of_age(age)) * kOfKey + byte % kOfKey);
  }

  /// For a warp that will take the newest token: loads the parameters of its norms, which are constant.
  __device__ void load_norms() { norm_ = parameters(of_key() ? job_.norms.key : job_.norms.query); }
  /// What such a warp loads of the newest token, as the projection has written it.
  struct Newest {
    Vector own, value;   ///< own: of the query or the key
    unsigned kept_norm;  ///< the ring's entry of key_norms, as bits; 0 where it is not used
  };
  __device__ Newest load_newest() const {
    const int heads = job_.shape.heads;
    const int64_t first = (ring_ / heads * job_.stride + int64_t{ring_ % heads} * HeadSize) / kVectorWidth;
    const auto part_of = [&](const void* of_heads) {
      return __ldcg(static_cast<const Vector*>(of_heads) + first + lane());
    };
    return {part_of(of_key() ? job_.key : job_.query), part_of(job_.value),
            job_.shape.alibi ? __ldcg(norm_of_ring()) : 0};
  }
  /// Norms query and key, finds how many keys are read, and with `keeps` puts key and value into the ring. A
  /// barrier must follow.
  __device__ void take(const Newest& newest, bool keeps, Token& token) const {
    const Vector own = job_.norms.query.weight != nullptr ? normed(newest.own) : newest.own;
    if (group() == 0) token.query[lane()] = own;
    if (of_key()) {
      token.key[lane()] = own;
      token.value[lane()] = newest.value;
    }
    const int read =
        job_.shape.alibi ? keys_that_count(unpacked<Short>(own), newest.kept_norm, keeps) : count_;
    if (threadIdx.x % kWarp == 0) token.read = read;
    if (keeps && of_key()) {
      static_cast<Vector*>(job_.keys)[place_of(newest_place_)] = own;
      static_cast<Vector*>(job_.values)[place_of(newest_place_)] = newest.value;
    }
  }

  /// Starts to load the keys of the warp's groups from age `first` on, kLoads for each group, as far as they
  /// are below `end`.
  __device__ void load(int first, int end) {
    if (first >= end) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      // Beyond the end the last key once more; of the newest what its place holds, which attend() replaces.
      const int64_t from = place_of(place_of_age(min(age_of(first, i), end - 1)));
      keys_[i] = __ldcs(static_cast<const Vector*>(job_.keys) + from);
      values_[i] = __ldcs(static_cast<const Vector*>(job_.values) + from);
    }
  }
  /// Adds the keys that load(first, …) has loaded, as far as they are below `end`, and then those from
  /// `stride`, 2 `stride` … further on. Returns what all groups of the warp found, in every lane; nothing
  /// where there are none.
  __device__ const Found& attend_from(int first, int end, int stride, const Token& token) {
    query_ = scaled(unpacked<Short>(token.query[lane()]));
    if (first >= end) return found_;
    clear(first, end);
    attend(first, end, token);
    for (first += stride; first < end; first += stride) {
      load(first, end);
      attend(first, end, token);
    }
    meet_groups();
    return found_;
  }
  /// What it returned.
  __device__ const Found& found() const {
    return found_;
  }

 private:
  /// Clears what was loaded of keys that are not to be read after all, as there may be no numbers in them.
  __device__ void clear(int first, int end) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (age_of(first, i) >= end) keys_[i] = values_[i] = {0, 0, 0, 0};
    }
  }
  /// Adds the keys that were loaded. Those from `end` on have no weight, and their scores harm no maximum.
  __device__ void attend(int first, int end, const Token& token) {
    if (first == 0 && group() == 0) {
      keys_[0] = token.key[lane()];
      values_[0] = token.value[lane()];
    }
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

  /// A query whose products with keys are exponents of 2.
  __device__ static Floats scaled(Floats query) {
    const float factor = kLog2E * rsqrtf(static_cast<float>(HeadSize));
#pragma unroll
    for (float& feature : query.at) feature *= factor;
    return query;
  }

  /// The lane's parameters of a norm.
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
  __device__ int keys_that_count(const Floats& own, unsigned kept_norm, bool keeps) const {
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
    if (keeps && threadIdx.x % kWarp == 0) atomicMax(norm_of_ring(), __float_as_uint(key_norm));
    const float bound = kRoundings * sqrtf(norm * longest);
    const float age = (bound - score + exponents_of_all_) * ages_of_exponent_;
    return age < static_cast<float>(count_) ? min(count_, static_cast<int>(age) + 1) : count_;
  }

  __device__ unsigned* norm_of_ring() const {
    return reinterpret_cast<unsigned*>(job_.key_norms + ring_);
  }
  __device__ static int age_of(int first, int load) {
    return first + kGroups * load + group();
  }

  const DecodingAttention& job_;
  const int ring_;
  NormParameters norm_;  ///< of a warp that takes the newest token
  int64_t tokens_ = -1;  ///< of which these two follow
  int newest_place_, count_;
  Vector keys_[kLoads], values_[kLoads];
  Floats query_;        ///< the lane's features, scaled
  float slope_ = 0.0f;  ///< 0 without ALiBi, and these two only with it
  float ages_of_exponent_ = 0.0f, exponents_of_all_ = 0.0f;
  Found found_;
};

/// launch(a number of the type, an integral constant of the head's size).
template <class Launch>
void with_decoding_head(const DecodingShape& shape, Launch&& launch) {
  with_type(shape.type, [&](auto type) {
    switch (shape.head_size) {
      case 32:
        return launch(type, std::integral_constant<int, 32>());
      case 64:
        return launch(type, std::integral_constant<int, 64>());
      default:
        return launch(type, std::integral_constant<int, 128>());
    }
  });
}

}  // namespace adtrain::kernels
