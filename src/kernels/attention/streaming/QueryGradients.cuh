#pragma once

#include "kernels/attention/streaming/BackwardPass.cuh"
#include "kernels/primitives/Instructions.cuh"
#include "kernels/primitives/KeptPairs.cuh"

/// A thread block owns 64 queries of a head; the head's keys and values stream by. It computes dq, and before
/// it the deltas, which the kernel of keys reads too.
namespace adtrain::kernels::streaming_attention_pass {

template <class Short, int HeadSize, bool Dropout, bool Alibi, bool Segmented>
class QueriesBackward : StreamingBackward<Short, HeadSize> {
  using Base = StreamingBackward<Short, HeadSize>;
  using Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_;
  static constexpr int kWordBytes = Dropout ? kThreads * static_cast<int>(sizeof(uint32_t)) : 0;
  static constexpr int kWords = Base::kBesideTiles, kBounds = kWords + kStages * kWordBytes;
  using Bounds = SegmentBounds<Bound::kFirst>;

 public:
  static constexpr int kBytes = kBounds + (Segmented ? Bounds::kBytes : 0) + kTileAlignment;

  __device__ QueriesBackward(const Job& job, const OwnRows& own, char* shared)
      : Base(job, own, shared, job.keys, job.values, 0),
        queries_(job.queries),
        d_attention_output_(job.d_attention_output),
        first_row_(row_of(job.attention.shape, own.first)),
        slope_(Alibi ? alibi_slope(own.head, job.attention.shape.heads) : 0.0f) {}

  __device__ void run() {
    const int rows = job_.shape.rows;
    this->start_own_tiles(queries_, d_attention_output_, first_row_);
    int block = own_.begin;
    fetch(block);
    if constexpr (Segmented) Bounds::copy(bounds(), job_, own_);
    compute_deltas();
    take_queries();
    this->await_own_tiles();
    const int diagonal = own_.end - 1;
#pragma unroll 1
    for (; block < diagonal; ++block) {
      enter(block);
      add_keys<false>(block);
    }
    if (block == diagonal) {
      enter(block);
      add_keys<true>(block);
    }
    __syncthreads();
    this->store(gradients_.queries, first_row_, -gradients_.rows_before, rows, this->own_tile(0),
                job_.scale / Base::root() * this->of_gradients(), dquery_);
    this->template put_column_sums<1>(0);
  }

 private:
  __device__ Tile<HeadSize> keys(int block) const {
    return this->passing_tile(0, block);
  }
  __device__ Tile<HeadSize> values(int block) const {
    return this->passing_tile(1, block);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(kWords + block % kStages * kWordBytes);
  }
  /// Of packed and padded sequences: where the segments of the thread block's queries begin.
  __device__ int* bounds() const {
    return this->template values_at<int>(kBounds);
  }
  __device__ void fetch(int block) const {
    if (block >= own_.end) return;
    this->passing_.start_copy(block, keys(block), values(block));
    if constexpr (Dropout) start_copy_words(words(block), job_, own_, first_row_, kPassingRows * block);
  }
  __device__ void enter(int block) {
    this->await_stage(block);
    fetch(block + 1);
  }

  /// A row's lanes multiply eight features each; a warp has the rows that it needs itself.
  __device__ void compute_deltas() {
    constexpr int kChunks = HeadSize / 8, kAtOnce = kWarp / kChunks;
    const int lane = static_cast<int>(threadIdx.x) % kWarp, rows = job_.shape.rows;
    minus_delta_[0] = minus_delta_[1] = 0.0f;  // of queries that do not exist
#pragma unroll
    for (int i = 0; i < kWarpTile; i += kAtOnce) {
      const int row = first_row_ + kWarpTile * warp_ + i + lane / kChunks;
      const bool exists = row >= 0 && row < rows;
      const auto chunk = [&](const Bf16* output) {
        return output_chunk<Short, HeadSize>(output, job_, own_.sequence, exists ? row : 0, own_.head,
                                             lane % kChunks);
      };
      const float product = chunk(job_.attention_output).product_with(chunk(gradients_.attention_output));
      const float sum = head_sum<HeadSize>(product), minus_delta = exists ? -sum / job_.scale : 0.0f;
      if (exists && lane % kChunks == 0)
        gradients_.minus_deltas[int64_t{own_.number} * job_.around.rows + row] = minus_delta;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = 8 * half + lane_place(lane_).row;
        const float found = __shfl_sync(kAllLanes, minus_delta, own % kAtOnce * kChunks);
        if (own / kAtOnce == i / kAtOnce) minus_delta_[half] = found;
      }
    }
  }

  /// For queries that do not exist, all is 0, so that they have no gradients.
  __device__ void take_queries() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row_ + place_of(half);
      const bool exists = row >= 0 && row < job_.shape.rows;
      const int64_t place = int64_t{own_.number} * job_.around.rows + row;
      start_[half] = Base::kShift - (exists ? job_.lse[place] : 0.0f);
      if constexpr (Alibi) start_[half] -= slope_ * (own_.first + place_of(half));
    }
#pragma unroll
    for (Sums& sums : dquery_) sums = no_sums();
  }
  /// The place among the thread block's rows of the lane's row or, half = 1, the one 8 further down.
  __device__ int place_of(int half) const {
    return kWarpTile * warp_ + 8 * half + lane_place(lane_).row;
  }

  /// Adds a stage of keys to dq.
  template <bool Diagonal>
  __device__ __forceinline__ void add_keys(int block) {
    PassingSums scores, dweights;
#pragma unroll
    for (Sums& sums : scores) sums = no_sums();
    Base::start_scores(scores, this->own_tile(0), keys(block));
#pragma unroll
    for (Sums& sums : dweights) {
      sums = {{minus_delta_[0], minus_delta_[0], minus_delta_[1], minus_delta_[1]}};
    }
    Base::start_scores(dweights, this->own_tile(1), values(block));
    products_arrived<1>();  // all but d_attention_output vᵀ
    take_sums(scores);
    PassingFragments weights, dscores;
    weigh<Diagonal>(weights, scores, block);
    products_arrived<0>();
    take_sums(dweights);
    this->round_gradients(dscores, dweights);
    if constexpr (Dropout) drop(dscores, block);
#pragma unroll
    for (int step = 0; step < kPassingSteps; ++step) {
      dscores[step] = multiplied<Short>(weights[step], dscores[step]);
    }
    Base::start_sums(dquery_, dscores, keys(block));
    products_arrived<0>();
    take_sums(dquery_);
    hold(dscores);
  }

  /// Computes P, before dropout, times 2^kShift.
  template <bool Diagonal>
  __device__ __forceinline__ void weigh(PassingFragments& weights, PassingSums& scores, int block) const {
    const int column = lane_place(lane_).column;
    const float first = Alibi ? slope_ * (kPassingRows * block + column) : 0.0f;
#pragma unroll
    for (int i = 0; i < 4 * kPassingEights; ++i) {
      const int key = i / 4 * 8 + i % 2, half = i / 2 % 2;
      const float start = first + start_[half];
      float& value = scores[i / 4].value[i % 4];
      value = Base::weight_of(value, Alibi ? fmaf(slope_, static_cast<float>(key), start) : start);
    }
    if constexpr (Diagonal) {
      const int own = place_of(0) % kPassingRows - column;
#pragma unroll
      for (int i = 0; i < 4 * kPassingEights; ++i) {
        const int key = i / 4 * 8 + i % 2, half = i / 2 % 2;
        if (key > own + 8 * half) scores[i / 4].value[i % 4] = 0.0f;
      }
    }
    if constexpr (Segmented) hide_other_segments(scores, block);
    Base::round(weights, scores);
  }

  /// Of stages that not all of the thread block's queries read whole.
  __device__ __forceinline__ void hide_other_segments(PassingSums& weights, int block) const {
    const int* const first = bounds();
    if (first[kOwnRows - 1] <= kPassingRows * block) return;
    const int column = kPassingRows * block + lane_place(lane_).column;
    hide_before(weights, {first[place_of(0)] - column, first[place_of(1)] - column}, 0.0f);
  }

  /// Where dropout has dropped a weight, what is left of its gradient is −delta.
  __device__ void drop(PassingFragments& dweights, int block) const {
    const uint32_t* const of_row = words(block) + kWarpTile * warp_ + lane_place(lane_).row;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int word = i / 2, half = i % 2;
      const KeptPairs kept(of_row[kOwnRows * word + 8 * half], lane_);
      const uint32_t dropped = this->packed_gradients(minus_delta_[half], minus_delta_[half]);
#pragma unroll
      for (int eight = 0; eight < 4; ++eight) {
        uint32_t& pair = dweights[2 * word + eight / 2].part[2 * (eight % 2) + half];
        pair = kept.kept_or(pair, dropped, eight);
      }
    }
  }

  const TensorMap &queries_, &d_attention_output_;
  const int first_row_;  ///< the thread block's, in arrays over the last rows
  const float slope_;    ///< ALiBi's, of exponents of 2
  float start_[2];       ///< −lse of the lane's rows, with kShift, and ALiBi's part that depends on the row
  float minus_delta_[2];
  typename Base::OwnSums dquery_;
};

}  // namespace adtrain::kernels::streaming_attention_pass
