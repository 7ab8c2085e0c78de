#pragma once

#include <cstdint>

#include "kernels/attention/decoding/DecodingHead.cuh"
#include "kernels/block/stack/StackExchange.cuh"
#include "kernels/block/stack/StackMemory.cuh"
#include "kernels/primitives/ConstantWords.cuh"
#include "kernels/primitives/RowVectors.cuh"

namespace adtrain::kernels {

/// Attention of the newest tokens' queries over kept keys, as one thread of a thread block takes part in it.
/// A team of warps has a head of a row: all warps of a thread block, or where there are more heads than
/// thread blocks half of them. Of many keys and few heads several thread blocks have a part each, and what
/// they give meets in the first one. As in DecodingHead, 8 lanes have a key, and a warp has 4 at once; keys
/// are counted by age; the newest one's place in the ring is not read.
template <class Short, WeightForm kForm>
class StackAttention {
  using Memory = StackMemory<kForm>;
  using Lanes = HeadLanes<StackShape::kHeadSize>;
  static constexpr int kGroups = kWarp / Lanes::kCount, kLoadsAtOnce = 2;
  static constexpr int kWidthVectors = StackShape::kWidth / kVectorWidth;

 public:
  /// Made anew for each block, so that it takes no registers between.
  __device__ explicit StackAttention(const DecodingStack& job)
      : job_(job),
        thread_(made_here(threadIdx.x)),
        warps_(job.rows * StackShape::kHeads <= StackShape::kThreadBlocks ? Memory::kWarps
                                                                          : Memory::kWarps / 2) {
    const auto& places = Memory::template at<typename Memory::TokenPlaces>(Memory::kTokens);
    newest_place_ = places.newest;
    count_ = places.count;
    parts_ = places.parts;
    // With parts there are one or two rows.
    part_ = parts_ > 1 ? static_cast<int>(blockIdx.x / StackShape::kHeads) >> (job.rows - 1) : 0;
    head_ = static_cast<int>(blockIdx.x + StackShape::kThreadBlocks * (warp() / warps_)) -
            part_ * job.rows * StackShape::kHeads;
    if (job.alibi) slope_ = alibi_slope(head_ % StackShape::kHeads, StackShape::kHeads);
  }
  /// How many heads' teams a thread block has at most.
  static constexpr int kTeams = 2;
  static_assert(StackShape::kMostRows * StackShape::kHeads <= kTeams * StackShape::kThreadBlocks);

  __device__ void attend(int block) const {
    const BlockExchange exchange(job_, block);
    const bool works = head_ < job_.rows * StackShape::kHeads;
    const int row = head_ / StackShape::kHeads, of_row = head_ % StackShape::kHeads;
    const int64_t ring = int64_t{head_} * job_.window * Lanes::kCount + lane();
    const StackedBlock::Operands& rings = Memory::operands_of(block);
    auto* const kept_keys = static_cast<Vector*>(rings.keys) + ring;
    auto* const kept_values = static_cast<Vector*>(rings.values) + ring;
    Vector keys[kLoadsAtOnce], values[kLoadsAtOnce];
    float longest = 0.0f;
    if (works) {
      load(0, kept_keys, kept_values, keys, values);
      if (skips()) longest = __ldcg(rings.key_norms + head_);
    }
    const HeadNorm of_query = norm_of(rings.query), of_key = norm_of(rings.key);
    __syncthreads();  // all have read the sums of the product before
    if (!works) return;
    const Vector* newest = reinterpret_cast<const Vector*>(exchange.projected()) + (3 * row) * kWidthVectors +
                           of_row * Lanes::kCount + lane();
    Vector query, key, value;
    await_first(newest);
    do {
      query = look_at(newest);
      key = look_at(newest + kWidthVectors);
      value = look_at(newest + 2 * kWidthVectors);
    } while (!(has_come(query) && has_come(key) && has_come(value)));
    if (rings.query.weight != nullptr) {
      query = normed(query, of_query);
      key = normed(key, of_key);
    }
    const Floats factors = scaled(unpacked<Short>(query));
    if (keeps()) {
      kept_keys[newest_place_ * Lanes::kCount] = key;
      kept_values[newest_place_ * Lanes::kCount] = value;
    }
    const int read = skips() ? keys_that_count(longest, factors, unpacked<Short>(key)) : count_;
    float greatest = kLowest, total = 0.0f;
    Floats sums = {};
#pragma unroll 1
    for (int first = 0; first < read; first += kLoadsAtOnce * stride()) {
      Vector next_keys[kLoadsAtOnce] = {}, next_values[kLoadsAtOnce] = {};
      if (first + kLoadsAtOnce * stride() < read)
        load(first + kLoadsAtOnce * stride(), kept_keys, kept_values, next_keys, next_values);
      if (first == 0 && age_of(0, 0) == 0) {
        keys[0] = key;
        values[0] = value;
      }
      add(first, read, factors, keys, values, greatest, total, sums);
#pragma unroll
      for (int i = 0; i < kLoadsAtOnce; ++i) {
        keys[i] = next_keys[i];
        values[i] = next_values[i];
      }
    }
    meet_groups(total, sums);
    store(greatest, total, sums);
    group_barrier(static_cast<int>(1 + warp() / warps_), static_cast<int>(warps_ * kWarp));
    if (warp() % warps_ == 0) end(exchange);
    if (of_team() == warps_ - 1 && job_.alibi) remember(block, unpacked<Short>(key));
  }

 private:
  __device__ unsigned warp() const {
    return thread_ / kWarp;
  }
  /// The warp's place in its team, counted through all parts.
  __device__ unsigned of_team() const {
    return warp() % warps_ + warps_ * static_cast<unsigned>(part_);
  }
  __device__ unsigned lane() const {
    return thread_ % Lanes::kCount;
  }
  __device__ unsigned group() const {
    return thread_ % kWarp / Lanes::kCount;
  }
  /// Keys of a team at once.
  __device__ int stride() const {
    return kGroups * static_cast<int>(warps_) * parts_;
  }
  __device__ int age_of(int first, int load) const {
    return first + stride() * load + static_cast<int>(kGroups * of_team() + group());
  }
  /// Whether the lane's group puts the newest token into the ring.
  __device__ bool keeps() const {
    return of_team() == 1 && group() == 0;
  }

  /// Beyond the oldest key that one once more; of the newest the one before it.
  __device__ void load(int first, const Vector* kept_keys, const Vector* kept_values,
                       Vector (&keys)[kLoadsAtOnce], Vector (&values)[kLoadsAtOnce]) const {
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) {
      const int place = newest_place_ - min(max(age_of(first, i), 1), count_ - 1);
      const int vector = (place < 0 ? place + job_.window : place) * Lanes::kCount;
      keys[i] = look_at(kept_keys + vector);
      values[i] = look_at(kept_values + vector);
    }
  }
  /// The lane's parameters.
  struct HeadNorm {
    Vector weight, bias;
  };
  __device__ HeadNorm norm_of(const HeadNormVectors& norm) const {
    HeadNorm found = {};
    if (norm.weight != nullptr) found.weight = __ldg(norm.weight + lane());
    if (norm.bias != nullptr) found.bias = __ldg(norm.bias + lane());
    return found;
  }
  __device__ Vector normed(const Vector& x, const HeadNorm& norm) const {
    const Floats weight = unpacked<Short>(norm.weight), bias = unpacked<Short>(norm.bias);
    return job_.layer_norm ? normed_head<Short, StackShape::kHeadSize, true>(x, weight, bias, job_.epsilon)
                           : normed_head<Short, StackShape::kHeadSize, false>(x, weight, bias, job_.epsilon);
  }
  __device__ static Floats scaled(Floats query) {
    constexpr float kScale = 0.125f * 1.44269504f;  // 1 / sqrt(head size), of exponents of 2
    static_assert(StackShape::kHeadSize == 64);
#pragma unroll
    for (float& feature : query.at) feature *= kScale;
    return query;
  }
  /// Whether it is worth while to find out how many keys are read.
  __device__ bool skips() const {
    constexpr int kMany = 128;
    return job_.alibi && count_ > kMany;
  }
  /// As DecodingHead::keys_that_count(). `longest`: the ring's entry of key_norms.
  __device__ int keys_that_count(float longest, const Floats& query, const Floats& key) const {
    constexpr float kRoundings = 1.0f + 1e-4f;
    const float score = Lanes::sum(product_of(query, key)), key_square = Lanes::sum(product_of(key, key));
    // As whole numbers: NaN is the greatest, and stays.
    longest = __uint_as_float(max(__float_as_uint(longest), __float_as_uint(key_square)));
    const float bound = kRoundings * sqrtf(Lanes::sum(product_of(query, query)) * longest);
    const float age = (bound - score + kNegligible - __log2f(1.0f - exp2_of(-slope_))) / slope_;
    return age < static_cast<float>(count_) ? min(count_, static_cast<int>(age) + 1) : count_;
  }
  /// The newest key among those whose length bounds later scores.
  __device__ void remember(int block, const Floats& key) const {
    const float square = Lanes::sum(product_of(key, key));
    if (thread_ % kWarp == 0)
      atomicMax(reinterpret_cast<unsigned*>(Memory::operands_of(block).key_norms + head_),
                __float_as_uint(square));
  }

  __device__ void add(int first, int read, const Floats& query, const Vector (&keys)[kLoadsAtOnce],
                      const Vector (&values)[kLoadsAtOnce], float& greatest, float& total,
                      Floats& sums) const {
    float scores[kLoadsAtOnce], new_greatest = greatest;
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) {
      const int age = age_of(first, i);
      const float score = Lanes::sum(product_of(unpacked<Short>(keys[i]), query));
      scores[i] = age < read ? score - slope_ * static_cast<float>(age) : kLowest;
      new_greatest = fmaxf(new_greatest, scores[i]);
    }
#pragma unroll
    for (int apart = Lanes::kCount; apart < kWarp; apart *= 2)
      new_greatest = fmaxf(new_greatest, __shfl_xor_sync(kAllLanes, new_greatest, apart));
    const float factor = exp2_of(greatest - new_greatest);
    greatest = new_greatest;
    total *= factor;
#pragma unroll
    for (float& sum : sums.at) sum *= factor;
#pragma unroll
    for (int i = 0; i < kLoadsAtOnce; ++i) {
      const float weight = age_of(first, i) < read ? exp2_of(scores[i] - greatest) : 0.0f;
      const Floats value = unpacked<Short>(values[i]);
      total += weight;
#pragma unroll
      for (int feature = 0; feature < kVectorWidth; ++feature)
        sums.at[feature] = fmaf(weight, value.at[feature], sums.at[feature]);
    }
  }
  __device__ static void meet_groups(float& total, Floats& sums) {
#pragma unroll
    for (int apart = Lanes::kCount; apart < kWarp; apart *= 2) {
      total += __shfl_xor_sync(kAllLanes, total, apart);
#pragma unroll
      for (float& sum : sums.at) sum += __shfl_xor_sync(kAllLanes, sum, apart);
    }
  }
  /// A warp's sums, in the places of its sums of products: 32 features in each half of row 0, and then the
  /// greatest exponent and the weights' total.
  __device__ void store(float greatest, float total, const Floats& sums) const {
    if (group() != 0) return;
    const uint32_t to = Memory::part_of(warp(), 0, lane() / 4) + 32 * (lane() % 4);
    Memory::template at<float4>(to) = {sums.at[0], sums.at[1], sums.at[2], sums.at[3]};
    Memory::template at<float4>(to + 16) = {sums.at[4], sums.at[5], sums.at[6], sums.at[7]};
    if (lane() == 0) Memory::template at<float2>(Memory::part_of(warp(), 1, 0)) = {greatest, total};
  }
  /// By the thread block's first warp of the team: a lane has two features, and the exponent and total of one
  /// warp.
  __device__ void end(const BlockExchange& exchange) const {
    const unsigned thread = thread_ % kWarp;
    const float2 of_warp = thread < warps_
                               ? Memory::template at<float2>(Memory::part_of(warp() + thread, 1, 0))
                               : float2{kLowest, 0.0f};
    const float greatest = warp_max(of_warp.x), factor = exp2_of(of_warp.x - greatest);
    const float total = warp_sum(factor * of_warp.y);
    float2 sums = {0.0f, 0.0f};
#pragma unroll 8
    for (unsigned i = 0; i < warps_; ++i) {
      const float of_i = __shfl_sync(kAllLanes, factor, static_cast<int>(i));
      const auto& part =
          Memory::template at<float2>(Memory::part_of(warp() + i, 0, thread / 16) + 8 * (thread % 16));
      sums = {fmaf(of_i, part.x, sums.x), fmaf(of_i, part.y, sums.y)};
    }
    PartOfKeys all = {sums, greatest, total};
    uint32_t* const others = exchange.of_parts() + (parts_ - 1) * kPartWords * head_;
    if (part_ > 0) return give_part(all, others + kPartWords * (part_ - 1));
    if (parts_ > 1) add_others(others, all);
    give(exchange.attended() + head_ * StackShape::kHeadSize / 2 + thread,
         packed<Short>(all.sums.x / all.total, all.sums.y / all.total));
  }

  /// What a part of the keys gives to two features.
  struct PartOfKeys {
    float2 sums;
    float greatest, total;  ///< of weights: they are relative to 2^greatest

    __device__ void add(const PartOfKeys& other) {
      const float both = fmaxf(greatest, other.greatest), own = exp2_of(greatest - both),
                  of_other = exp2_of(other.greatest - both);
      *this = {{fmaf(own, sums.x, of_other * other.sums.x), fmaf(own, sums.y, of_other * other.sums.y)},
               both,
               fmaf(own, total, of_other * other.total)};
    }
  };
  __device__ void give_part(const PartOfKeys& part, uint32_t* to) const {
    give(to + 2 * (thread_ % kWarp), part.sums);
    if (thread_ % kWarp == 0) give(to + StackShape::kHeadSize, {part.greatest, part.total});
  }
  __device__ void add_others(const uint32_t* others, PartOfKeys& all) const {
    uint2 sums[StackShape::kParts - 1], of_weights[StackShape::kParts - 1];
    bool have_come = false;
    while (!have_come) {
      have_come = true;
#pragma unroll
      for (int i = 0; i < StackShape::kParts - 1; ++i) {
        // Beyond the last one that one once more.
        const auto* const pairs = reinterpret_cast<const uint2*>(others + kPartWords * min(i, parts_ - 2));
        sums[i] = look_at(pairs + thread_ % kWarp);
        of_weights[i] = look_at(pairs + StackShape::kHeadSize / 2);
        have_come = have_come && has_come(sums[i]) && has_come(of_weights[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < StackShape::kParts - 1; ++i) {
      if (i + 1 >= parts_) break;
      all.add({{__uint_as_float(sums[i].x), __uint_as_float(sums[i].y)},
               __uint_as_float(of_weights[i].x),
               __uint_as_float(of_weights[i].y)});
    }
  }

  const DecodingStack& job_;
  const unsigned thread_;
  const unsigned warps_;  ///< of a team
  int newest_place_, count_, parts_, part_;
  int head_;  ///< row · heads + head: that of the thread's team
  float slope_ = 0.0f;
};

}  // namespace adtrain::kernels
