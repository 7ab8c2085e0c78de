#pragma once

#include "kernels/attention/streaming/BackwardPass.cuh"
#include "kernels/primitives/Instructions.cuh"

/// A thread block owns 64 keys of a head; the head's queries and d_attention_output stream by. It computes
/// dk and dv.
namespace adtrain::kernels::streaming_attention_pass {

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
class KeysBackward : StreamingBackward<Short, HeadSize> {
  using Base = StreamingBackward<Short, HeadSize>;
  using Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_;
  static constexpr int kStatistics = kPassingRows * static_cast<int>(sizeof(float));
  static constexpr int kWordBytes = Dropout ? kThreads * static_cast<int>(sizeof(uint32_t)) : 0;
  static constexpr int kLogs = Base::kBesideTiles, kDeltas = kLogs + kStages * kStatistics,
                       kWords = kDeltas + kStages * kStatistics, kBounds = kWords + kStages * kWordBytes;
  using Bounds = SegmentBounds<Bound::kEnd>;

 public:
  static constexpr int kBytes = kBounds + (Segmented ? Bounds::kBytes : 0) + kTileAlignment;

  __device__ KeysBackward(const Job& job, const OwnRows& own, char* shared)
      : Base(job, own, shared, job.queries, job.d_attention_output, row_of(job.attention.shape, 0)),
        keys_(job.keys),
        values_(job.values),
        slope_(Alibi ? alibi_slope(own.head, job.attention.shape.heads) : 0.0f) {}

  __device__ void run() {
    const int tokens = job_.shape.tokens;
    this->start_own_tiles(keys_, values_, own_.first);
    int block = own_.begin;
    fetch(block);
    if constexpr (Segmented) Bounds::copy(bounds(), job_, own_);
#pragma unroll
    for (int i = 0; i < Base::kEights; ++i) dkey_[i] = dvalue_[i] = no_sums();
    this->await_own_tiles();
    const int end = own_.end;
    if (block == diagonal_stage(own_) && block < end) {
      enter(block);
      add_queries<true>(block++);
    }
#pragma unroll 1
    for (; block < end; ++block) {
      enter(block);
      add_queries<false>(block);
    }
    __syncthreads();
    this->store(gradients_.keys, own_.first, 0, tokens, this->own_tile(0),
                job_.scale / Base::root() * this->of_gradients(), dkey_);
    this->store(gradients_.values, own_.first, 0, tokens, this->own_tile(1), job_.scale * Base::of_weights(),
                dvalue_);
    this->template put_column_sums<2>(1);
  }

 private:
  __device__ Tile<HeadSize> queries(int block) const {
    return this->passing_tile(0, block);
  }
  __device__ Tile<HeadSize> d_attention_output(int block) const {
    return this->passing_tile(1, block);
  }
  __device__ float* lse(int block) const {
    return this->template values_at<float>(kLogs + block % kStages * kStatistics);
  }
  __device__ float* minus_deltas(int block) const {
    return this->template values_at<float>(kDeltas + block % kStages * kStatistics);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(kWords + block % kStages * kWordBytes);
  }
  /// Of packed and padded sequences: where the segments of the thread block's keys end.
  __device__ int* bounds() const {
    return this->template values_at<int>(kBounds);
  }
  /// For queries that do not exist, lse and d_attention_output are 0, so that they add nothing.
  __device__ void fetch(int block) const {
    if (block >= own_.end) return;
    this->passing_.start_copy(block, queries(block), d_attention_output(block));
    const int first = row_of(job_.shape, kPassingRows * block), rows = job_.shape.rows,
              thread = static_cast<int>(threadIdx.x);
    static_assert(kThreads >= 2 * kPassingRows);
    if (thread < 2 * kPassingRows) {
      const int place = thread % kPassingRows, row = first + place;
      float* const to = thread < kPassingRows ? lse(block) : minus_deltas(block);
      const float* const from = thread < kPassingRows ? job_.lse : gradients_.minus_deltas;
      start_copy_or_clear(to + place, from + int64_t{own_.number} * job_.around.rows + row,
                          row >= 0 && row < rows);
    }
    if constexpr (Dropout) start_copy_words(words(block), job_, own_, first, own_.first);
  }
  __device__ void enter(int block) {
    this->await_stage(block);
    fetch(block + 1);
  }

  /// Adds a stage of queries to dk and dv. Scores have keys as rows.
  template <bool Diagonal>
  __device__ __forceinline__ void add_queries(int block) {
    PassingSums scores, dweights;
#pragma unroll
    for (Sums& sums : scores) sums = no_sums();
    Base::start_scores(scores, this->own_tile(0), queries(block));
    const float* const deltas = minus_deltas(block) + lane_place(lane_).column;
#pragma unroll
    for (int eight = 0; eight < kPassingEights; ++eight) dweights[eight] = sums_from(deltas + 8 * eight);
    Base::start_scores(dweights, this->own_tile(1), d_attention_output(block));

    products_arrived<1>();  // all but d_attention_output vᵀ
    take_sums(scores);
    PassingFragments weights, kept_weights, dscores;
    weigh<Diagonal>(weights, scores, block);
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) kept_weights[step] = weights[step];
    for_masks(block, [&](int step, int part, uint32_t mask) { kept_weights[step].part[part] &= mask; });
    Base::start_sums(dvalue_, kept_weights, d_attention_output(block));

    products_arrived<1>();  // all but dv's
    take_sums(dweights);
    this->round_gradients(dscores, dweights);
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      multiply_by_weights(dscores[step], weights[step], kept_weights[step], deltas + 16 * step);
    }
    Base::start_sums(dkey_, dscores, queries(block));
    products_arrived<0>();
    take_sums(dkey_);
    take_sums(dvalue_);
    hold(kept_weights);
    hold(dscores);
  }

  /// From gradients of weights to those of scores. Of a dropped weight, −delta is all that is left of its
  /// gradient.
  __device__ __forceinline__ void multiply_by_weights(LeftFragment& gradients, const LeftFragment& weights,
                                                      const LeftFragment& kept_weights,
                                                      const float* minus_deltas) const {
    if constexpr (!Dropout) {
      gradients = multiplied<Short>(weights, gradients);
    } else {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const float* const delta = minus_deltas + 8 * (part / 2);
        const uint32_t kept = kept_weights.part[part], dropped = weights.part[part] ^ kept;
        const uint32_t rest = multiplied<Short>(dropped, this->packed_gradients(delta[0], delta[1]));
        gradients.part[part] = multiplied_plus<Short>(kept, gradients.part[part], rest);
      }
    }
  }

  /// With dropout, calls take(step, part, mask) with the masks of the fragments' elements.
  template <class Take>
  __device__ void for_masks(int block, Take&& take) const {
    if constexpr (!Dropout) return;
    const LanePlace place = lane_place(lane_);
    const uint32_t* const of_query = words(block) + kPassingRows * (warp_ / 2) + place.column;
    const int shift = 7 - place.row, first_byte = 2 * (warp_ % 2);
#pragma unroll
    for (int eight = 0; eight < kPassingEights; ++eight) {
      const uint2 kept = *reinterpret_cast<const uint2*>(of_query + 8 * eight);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        take(eight / 2, 2 * (eight % 2) + half,
             pair_mask(kept.x << shift, kept.y << shift, first_byte + half));
      }
    }
  }

  /// Computes P, before dropout, times 2^kShift.
  template <bool Diagonal>
  __device__ __forceinline__ void weigh(PassingFragments& weights, PassingSums& scores, int block) const {
    const LanePlace place = lane_place(lane_);
    // The place of the lane's key among the block's, from that of its first query in the stage.
    const int own = kWarpTile * warp_ + place.row - place.column;
    const float first =
        Base::kShift + (Alibi ? slope_ * (own + kPassingRows * (diagonal_stage(own_) - block)) : 0.0f);
    const float* const logs = lse(block) + place.column;
#pragma unroll
    for (int i = 0; i < 4 * kPassingEights; ++i) {
      const int query = i / 4 * 8 + i % 2, half = i / 2 % 2;
      const float bias = Alibi ? fmaf(slope_, static_cast<float>(8 * half - query), first) : first;
      float& value = scores[i / 4].value[i % 4];
      value = Base::weight_of(value, bias - logs[query]);
    }
    if constexpr (Diagonal) {
#pragma unroll
      for (int i = 0; i < 4 * kPassingEights; ++i) {
        const int query = i / 4 * 8 + i % 2, half = i / 2 % 2;
        if (query < own + 8 * half) scores[i / 4].value[i % 4] = 0.0f;
      }
    }
    if constexpr (Segmented) hide_from_other_segments(scores, block);
    Base::round(weights, scores);
  }

  /// Of stages whose queries do not all read all of the thread block's keys.
  __device__ __forceinline__ void hide_from_other_segments(PassingSums& weights, int block) const {
    const int* const end_of = bounds();
    if (end_of[0] >= kPassingRows * (block + 1)) return;
    const LanePlace place = lane_place(lane_);
    const int own = kWarpTile * warp_ + place.row, column = kPassingRows * block + place.column;
    const int end[2] = {end_of[own] - column, end_of[own + 8] - column};
#pragma unroll
    for (int i = 0; i < 4 * kPassingEights; ++i) {
      const int query = i / 4 * 8 + i % 2, half = i / 2 % 2;
      if (query >= end[half]) weights[i / 4].value[i % 4] = 0.0f;
    }
  }

  const TensorMap &keys_, &values_;
  const float slope_;  ///< ALiBi's, of exponents of 2
  typename Base::OwnSums dkey_, dvalue_;
};

}  // namespace adtrain::kernels::streaming_attention_pass
