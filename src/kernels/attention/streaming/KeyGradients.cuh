#pragma once

#include "kernels/attention/streaming/BackwardPass.cuh"
#include "kernels/primitives/Instructions.cuh"

/// A thread block owns 128 keys of a head; the head's queries and d_attention_output stream by. It computes
/// dk, dv and dS.
namespace adtrain::kernels::streaming_attention_pass {

template <int HeadSize, bool Dropout, bool Alibi>
class KeysBackward : StreamingBackward<HeadSize> {
  using Base = StreamingBackward<HeadSize>;
  using Base::launch_, Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_, Base::kSteps;
  static constexpr int kStatistics = kPassingRows * static_cast<int>(sizeof(float));
  static constexpr int kKeys = 0, kValues = Base::kOwnTile, kPassing = 2 * Base::kOwnTile;
  static constexpr int kQueries = 0, kOutputGradients = Base::kPassingTile, kLogs = 2 * Base::kPassingTile,
                       kDeltas = kLogs + kStatistics, kWords = kDeltas + kStatistics,
                       kPassingBytes =
                           kWords + (Dropout ? kPassingWords * static_cast<int>(sizeof(uint32_t)) : 0);

 public:
  static constexpr int kBytes = kPassing + 2 * kPassingBytes;

  __device__ KeysBackward(const Job& job, const OwnRows& own, char* shared)
      : Base(job, own, shared), slope_(Alibi ? alibi_slope(own.head, job.attention.shape.heads) : 0.0f) {}

  __device__ void run() {
    const int thread = thread_anew(), tokens = job_.shape.tokens;
    start_copy_rows<kOwnRows>(this->tile_at(kKeys), job_.keys, own_, own_.first, tokens, thread);
    start_copy_rows<kOwnRows>(this->tile_at(kValues), job_.values, own_, own_.first, tokens, thread);
    fetch(nearest_stage<Own::kKeys>(own_));
    copies_arrived();
    __syncthreads();
    take_keys();
    meet_passing_rows<Own::kKeys>(
        own_, [&](int block) { fetch(block); },
        [&](int block, int step, auto diagonal) { add_queries<decltype(diagonal)::kValue>(block, step); });
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      this->store(gradients_.keys, own_.first, 0, tokens, warp_tile, this->tile_at(kKeys),
                  job_.scale / Base::root(), dkey_[warp_tile]);
      this->store(gradients_.values, own_.first, 0, tokens, warp_tile, this->tile_at(kValues), job_.scale,
                  dvalue_[warp_tile]);
    }
  }

 private:
  __device__ static int passing(int block) {
    return kPassing + block % 2 * kPassingBytes;
  }
  __device__ Tile<HeadSize> queries(int block) const {
    return this->tile_at(passing(block) + kQueries);
  }
  __device__ Tile<HeadSize> d_attention_output(int block) const {
    return this->tile_at(passing(block) + kOutputGradients);
  }
  __device__ float* lse(int block) const {
    return this->template values_at<float>(passing(block) + kLogs);
  }
  __device__ float* minus_deltas(int block) const {
    return this->template values_at<float>(passing(block) + kDeltas);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(passing(block) + kWords);
  }
  __device__ HeadMatrix<const Bf16> d_attention_output_rows() const {
    return rows_of_heads<HeadSize>(gradients_.attention_output, job_.shape);
  }
  /// The index of the head's first row in lse and minus_deltas.
  __device__ int64_t first_sum() const {
    return int64_t{own_.number} * job_.shape.rows;
  }
  /// exp2 of the scaled product of query and key, plus `start`: minus the query's lse, and ALiBi's part.
  __device__ static float weight_of(float product, float start) {
    return exp2_of(fmaf(product, kLog2E / Base::root(), start));
  }
  /// For queries that do not exist, lse and d_attention_output are 0, so that they add nothing.
  __device__ void fetch(int block) const {
    static_assert(kThreads == 2 * kPassingRows);
    const int first = row_of(job_.shape, kPassingRows * block), rows = job_.shape.rows,
              thread = thread_anew();
    start_copy_rows<kPassingRows>(queries(block), job_.queries, own_, first, rows, thread);
    start_copy_rows<kPassingRows>(d_attention_output(block), d_attention_output_rows(), own_, first, rows,
                                  thread);
    const int place = thread % kPassingRows, row = first + place;
    float* const to = thread < kPassingRows ? lse(block) : minus_deltas(block);
    const float* const from = thread < kPassingRows ? job_.lse : gradients_.minus_deltas;
    start_copy_or_clear(to + place, from + first_sum() + row, row >= 0 && row < rows);
    if constexpr (Dropout)
      start_copy_words<kPassingRows>(words(block), job_, own_, first, own_.first, thread);
  }

  __device__ void take_keys() {
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        key_[warp_tile][step] = left_of(this->tile_at(kKeys), first_of(warp_tile), 16 * step, lane_);
      }
#pragma unroll
      for (int i = 0; i < Base::kEights; ++i) dkey_[warp_tile][i] = dvalue_[warp_tile][i] = no_sums();
    }
  }
  __device__ int first_of(int warp_tile) const {
    return kWarpRows * warp_ + kWarpTile * warp_tile;
  }

  /// Adds 32 queries to dk and dv. Scores have keys as rows.
  template <bool Diagonal>
  __device__ void add_queries(int block, int step) {
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      lane_ = lane_anew();
      const int row = kStepRows * step + 16 * group;
      LeftFragment weights[kWarpTiles], kept_weights[kWarpTiles];
      weigh<Diagonal>(weights, block, row, group);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile)
        kept_weights[warp_tile] = weights[warp_tile];
      if constexpr (Dropout) {
        for_masks(block, row, [&](int warp_tile, int part, uint32_t mask) {
          kept_weights[warp_tile].part[part] &= mask;
        });
      }
      add_rows(dvalue_, kept_weights, d_attention_output(block), row);

      LeftFragment dscores[kWarpTiles];
      find_dweights(dscores, block, row);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile)
        dscores[warp_tile] = multiplied(weights[warp_tile], dscores[warp_tile]);
      add_rows(dkey_, dscores, queries(block), row);
      store_dscores<Diagonal>(dscores, block, row);
    }
  }
  /// Calls take(warp tile, part, mask) with the dropout masks of the fragments' elements. The words are read
  /// from shared memory each time, because registers are scarce.
  template <class Take>
  __device__ void for_masks(int block, int row, Take&& take) const {
    const LanePlace place = lane_place(lane_);
    const uint32_t* const of_query = words(block) + kPassingRows * warp_ + row + place.column;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const uint2 kept = *reinterpret_cast<const uint2*>(of_query + 8 * eight);
      const uint32_t first = kept.x << (7 - place.row), second = kept.y << (7 - place.row);
#pragma unroll
      for (int i = 0; i < 2 * kWarpTiles; ++i) take(i / 2, 2 * eight + i % 2, pair_mask(first, second, i));
    }
  }

  /// Computes P, before dropout.
  template <bool Diagonal>
  __device__ void weigh(LeftFragment (&weights)[kWarpTiles], int block, int row, int group) const {
    const LanePlace place = lane_place(lane_);
    Sums scores[kWarpTiles][2];
#pragma unroll
    for (auto& of_warp_tile : scores) of_warp_tile[0] = of_warp_tile[1] = no_sums();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(queries(block), row, 16 * step, lane_);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        multiply_add(scores[warp_tile][0], scores[warp_tile][1], key_[warp_tile][step], right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const int column = row + 8 * eight + place.column;
      const float2 log = *reinterpret_cast<const float2*>(lse(block) + column);
      float start[2] = {-log.x, -log.y};
      if constexpr (Alibi) {
        const int ahead = kPassingRows * block + column - own_.first - first_of(0) - place.row;
#pragma unroll
        for (int i = 0; i < 2; ++i) start[i] -= slope_ * (ahead + i);
      }
#pragma unroll
      for (int i = 0; i < 2 * kWarpTiles; ++i) {
        const int warp_tile = i / 2, half = i % 2;
        const float* score = scores[warp_tile][eight].value + 2 * half;
        const float bias = Alibi ? slope_ * (kWarpTile * warp_tile + 8 * half) : 0.0f;
        float weight[2] = {weight_of(score[0], start[0] + bias), weight_of(score[1], start[1] + bias)};
        if constexpr (Diagonal) {
          const int behind = 16 * (group - warp_tile) + 8 * (eight - half) + place.column - place.row;
          if (behind < 0) weight[0] = 0.0f;
          if (behind + 1 < 0) weight[1] = 0.0f;
        }
        weights[warp_tile].part[2 * eight + half] = packed(weight[0], weight[1]);
      }
    }
  }

  /// Computes m · d_attention_output vᵀ − delta.
  __device__ void find_dweights(LeftFragment (&found)[kWarpTiles], int block, int row) const {
    const float* const of_query = minus_deltas(block) + row + lane_place(lane_).column;
    Sums dweights[kWarpTiles][2];
    uint32_t dropped[2];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const Sums start = sums_from(of_query + 8 * eight);
      dropped[eight] = packed(start.value[0], start.value[1]);
#pragma unroll
      for (auto& of_warp_tile : dweights) of_warp_tile[eight] = start;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(d_attention_output(block), row, 16 * step, lane_);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        const LeftFragment value = left_of(this->tile_at(kValues), first_of(warp_tile), 16 * step, lane_);
        multiply_add(dweights[warp_tile][0], dweights[warp_tile][1], value, right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
      for (int i = 0; i < 2 * kWarpTiles; ++i) {
        const int warp_tile = i / 2, half = i % 2;
        const float* dweight = dweights[warp_tile][eight].value + 2 * half;
        found[warp_tile].part[2 * eight + half] = packed(dweight[0], dweight[1]);
      }
    }
    if constexpr (Dropout) {
      for_masks(block, row, [&](int warp_tile, int part, uint32_t mask) {
        uint32_t& pair = found[warp_tile].part[part];
        pair = (pair & mask) | (dropped[part / 2] & ~mask);
      });
    }
  }

  /// Stores dS for the third kernel.
  template <bool Diagonal>
  __device__ void store_dscores(const LeftFragment (&dscores)[kWarpTiles], int block, int row) const {
    const int query = (kPassingRows * block + row) / kWarpTile, key = (own_.first + first_of(0)) / kWarpTile;
    uint4* const to = launch_.dscores(own_.number, query, key, lane_anew());
#pragma unroll
    for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
      const uint32_t(&part)[4] = dscores[warp_tile].part;
      if (!Diagonal || key + warp_tile <= query) to[kWarp * warp_tile] = {part[0], part[1], part[2], part[3]};
    }
  }

  /// sums += left · tile rows `row` … `row` + 15.
  __device__ void add_rows(Sums (&sums)[kWarpTiles][Base::kEights], const LeftFragment (&left)[kWarpTiles],
                           Tile<HeadSize> tile, int row) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const RightFragments right = right_of(tile, row, 16 * i, lane_);
#pragma unroll
      for (int warp_tile = 0; warp_tile < kWarpTiles; ++warp_tile) {
        multiply_add(sums[warp_tile][2 * i], sums[warp_tile][2 * i + 1], left[warp_tile], right);
      }
    }
  }

  const float slope_;  ///< ALiBi's, of exponents of 2
  LeftFragment key_[kWarpTiles][kSteps];
  Sums dkey_[kWarpTiles][Base::kEights], dvalue_[kWarpTiles][Base::kEights];
};

}  // namespace adtrain::kernels::streaming_attention_pass
