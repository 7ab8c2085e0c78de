#include <cmath>

#include "base/Launch.cuh"
#include "model/kernels/attention/GroupTile.cuh"
#include "model/kernels/attention/LongAttention.h"
#include "model/kernels/attention/LongTiles.cuh"
#include "model/kernels/fused/Instructions.cuh"
#include "model/kernels/fused/Tile.cuh"
#include "model/kernels/fused/block_forward/DropoutBits.cuh"

/// The backward pass of attention over long sequences. A head, with dropout's scale c and m = 1 for what is
/// kept:
///
///     P = exp2(log2 e / √head size · q kᵀ − log_sum)
///     dS = P (m · dread vᵀ − delta),  delta = Σ dread · read / c
///     dq = c / √head size · dS k,  dk = c / √head size · dSᵀ q,  dv = c (m P)ᵀ dread
///
/// The first kernel has 128 queries in a thread block, whose keys and values pass by: deltas and dq. The
/// second has 128 keys, whose queries and dread pass by: dk and dv. Both compute the weights, so that thread
/// blocks need nothing of each other.
///
/// Shared memory for heads of 64, 66.5 and 67 KiB:
///
///     queries, dread  (128, 64), 16 KiB each: until they are in registers; then dq, on its way out
///     keys, values    (2, 64, 64), 16 KiB each: passing
///     minus_deltas    (128), fp32
///     words           (2, 2, 128), 2 KiB: dropout's for what passes
///
///     keys, values    (128, 64), 16 KiB each: then dk and dv, on their way out
///     queries, dread  (2, 64, 64), 16 KiB each: passing
///     log_sums, minus_deltas  (2, 64), fp32: of them
///     words           (2, 4, 64), 2 KiB: dropout's for them
namespace adtrain::kernels {
namespace {

using namespace long_attention_pass;
using forward_pass::KeptPairs;

struct Job {
  HeadAttention attention;
  HeadAttentionGradients gradients;
  BlockOrder of_queries, of_keys;
};

/// What both kernels know: matrices and their sizes.
template <int HeadSize>
class LongBackward {
 protected:
  static constexpr int kSteps = HeadSize / 16, kEights = HeadSize / 8;
  static constexpr int kOwnTile = Tile<HeadSize>::bytes(kOwnRows);
  static constexpr int kPassingTile = Tile<HeadSize>::bytes(kPassingRows);
  static constexpr int kWordBytes = kPassingWords * static_cast<int>(sizeof(uint32_t));

  __device__ LongBackward(const Job& job, const OwnRows& own, char* shared)
      : job_(job.attention),
        gradients_(job.gradients),
        own_(own),
        shared_(shared),
        warp_(threadIdx.x / kWarp),
        lane_(lane_anew()) {}

  __device__ Tile<HeadSize> tile_at(int bytes) const { return {reinterpret_cast<Bf16*>(shared_ + bytes)}; }
  template <class Value>
  __device__ Value* values_at(int bytes) const {
    return reinterpret_cast<Value*>(shared_ + bytes);
  }
  __device__ HeadMatrix<const Bf16> dread_rows() const {
    return rows_of_heads<HeadSize>(gradients_.read, job_.shape);
  }
  /// Of the first row of the head, among all rows' log_sums and deltas.
  __device__ int64_t first_sum() const { return int64_t{own_.number} * job_.shape.rows; }
  __device__ static float root() { return std::sqrt(static_cast<float>(HeadSize)); }
  /// exp2 of a product of query and key, minus the query's log_sum.
  __device__ static float weight_of(float product, float minus_log) {
    return exp2_of(fmaf(product, kLog2E / root(), minus_log));
  }
  /// `first`: the matrix's row of the thread block's first; rows in [begin, end) are stored.
  __device__ void store(const HeadMatrix<Bf16>& to, int first, int begin, int end, int strip,
                        Tile<HeadSize> tile, float scale, const Sums (&sums)[kEights]) const {
    const int row = kWarpRows * warp_ + kStrip * strip;
    store_strip(to, own_, first + row, begin, end, from_row(tile, row), sums, {scale, scale});
  }

  const HeadAttention& job_;
  const HeadAttentionGradients& gradients_;
  const OwnRows& own_;
  char* const shared_;
  const int warp_;
  unsigned lane_;  ///< read anew where a lane's places in tiles would take registers that others need
};

// The first kernel

template <int HeadSize, bool Dropout>
class QueriesBackward : LongBackward<HeadSize> {
  using Base = LongBackward<HeadSize>;
  using Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_, Base::kSteps;
  static constexpr int kQueries = 0, kDread = Base::kOwnTile, kDeltas = 2 * Base::kOwnTile,
                       kPassing = kDeltas + kOwnRows * static_cast<int>(sizeof(float));
  static constexpr int kKeys = 0, kValues = Base::kPassingTile, kWords = 2 * Base::kPassingTile,
                       kPassingBytes = kWords + (Dropout ? Base::kWordBytes : 0);

 public:
  static constexpr int kBytes = kPassing + 2 * kPassingBytes;

  __device__ QueriesBackward(const Job& job, const OwnRows& own, char* shared) : Base(job, own, shared) {}

  __device__ void run() {
    const int thread = thread_anew(), rows = job_.shape.rows, first = row_of(job_.shape, own_.first);
    if (first + kOwnRows <= 0) return clear();
    start_copy_rows<kOwnRows>(this->tile_at(kQueries), job_.queries, own_, first, rows, thread);
    start_copy_rows<kOwnRows>(this->tile_at(kDread), this->dread_rows(), own_, first, rows, thread);
    fetch(0);
    find_deltas();
    copies_arrived();
    __syncthreads();
    take_queries();
    meet_passing_rows<Own::kQueries>(
        job_.shape, own_, [&](int block) { fetch(block); },
        [&](int block, int step, auto diagonal) { add_keys<decltype(diagonal)::kValue>(block, step); });
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      this->store(gradients_.queries, first, -gradients_.rows_before, rows, strip, this->tile_at(kQueries),
                  job_.scale / this->root(), dquery_[strip]);
    }
  }

 private:
  /// Queries that do not come out.
  __device__ void clear() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
      for (Sums& sums : dquery_[strip]) sums = no_sums();
      this->store(gradients_.queries, row_of(job_.shape, own_.first), -gradients_.rows_before, 0, strip,
                  this->tile_at(kQueries), 0.0f, dquery_[strip]);
    }
  }

  __device__ static int passing(int block) {
    return kPassing + block % 2 * kPassingBytes;
  }
  __device__ Tile<HeadSize> keys(int block) const {
    return this->tile_at(passing(block) + kKeys);
  }
  __device__ Tile<HeadSize> values(int block) const {
    return this->tile_at(passing(block) + kValues);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(passing(block) + kWords);
  }
  __device__ void fetch(int block) const {
    const int first = kPassingRows * block, end = job_.shape.tokens, thread = thread_anew();
    start_copy_rows<kPassingRows>(keys(block), job_.keys, own_, first, end, thread);
    start_copy_rows<kPassingRows>(values(block), job_.values, own_, first, end, thread);
    if constexpr (Dropout) {
      start_copy_words<kOwnRows>(words(block), job_, own_, row_of(job_.shape, own_.first), first, thread);
    }
  }

  /// Of the thread block's queries, for it and for the second kernel.
  __device__ void find_deltas() const {
    constexpr int kChunks = HeadSize / 8, kAtOnce = kThreads / kChunks;
    const int column = 8 * (threadIdx.x % kChunks);
    const HeadMatrix<const Bf16> read =
        rows_of_heads<HeadSize>(const_cast<const Bf16*>(job_.read), job_.shape);
    const auto chunk = [&](const HeadMatrix<const Bf16>& matrix, int row) {
      const Bf16* from = matrix.at(own_.sequence, row, own_.head) + column;
      return ChunkValues::of(__ldg(reinterpret_cast<const uint4*>(from)));
    };
#pragma unroll 4
    for (int place = threadIdx.x / kChunks; place < kOwnRows; place += kAtOnce) {
      const int row = row_of(job_.shape, own_.first + place);
      const bool exists = row >= 0 && row < job_.shape.rows;
      float product = 0.0f;
      if (exists) product = chunk(read, row).product_with(chunk(this->dread_rows(), row));
      const float minus_delta = -head_sum<HeadSize>(product) / job_.scale;
      if (column == 0) {
        this->template values_at<float>(kDeltas)[place] = minus_delta;
        if (exists) gradients_.minus_deltas[this->first_sum() + row] = minus_delta;
      }
    }
  }

  __device__ void take_queries() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      const int first = kWarpRows * warp_ + kStrip * strip;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        query_[strip][step] = left_of(this->tile_at(kQueries), first, 16 * step, lane_);
        dread_[strip][step] = left_of(this->tile_at(kDread), first, 16 * step, lane_);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int place = first + lane_place(lane_).row + 8 * half,
                  row = row_of(job_.shape, own_.first + place);
        const bool exists = row >= 0 && row < job_.shape.rows;
        minus_log_[strip][half] = exists ? -job_.log_sums[this->first_sum() + row] : 0.0f;
        const float minus_delta = this->template values_at<float>(kDeltas)[place];
        minus_delta_[strip].value[2 * half] = minus_delta_[strip].value[2 * half + 1] = minus_delta;
      }
#pragma unroll
      for (Sums& sums : dquery_[strip]) sums = no_sums();
    }
  }

  /// What 32 keys add to dq. Scores lie with queries as rows.
  template <bool Diagonal>
  __device__ void add_keys(int block, int step) {
    uint32_t kept[kStrips][2] = {};
    if constexpr (Dropout) {
      const uint32_t* const of_row =
          words(block) + kOwnRows * step + kWarpRows * warp_ + lane_place(lane_).row;
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) kept[i / 2][i % 2] = of_row[8 * i];
    }
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      const int row = kStepRows * step + 16 * group;
      Sums scores[kStrips][2], dweights[kStrips][2];
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        scores[strip][0] = scores[strip][1] = no_sums();
        dweights[strip][0] = dweights[strip][1] = minus_delta_[strip];
      }
      add_products(scores, query_, keys(block), row);
      add_products(dweights, dread_, values(block), row);
      LeftFragment dscores[kStrips];
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const KeptPairs pairs(kept[strip][half], lane_);
          const float minus_delta = minus_delta_[strip].value[2 * half];
#pragma unroll
          for (int eight = 0; eight < 2; ++eight) {
            float weight[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              weight[i] = this->weight_of(scores[strip][eight].value[2 * half + i], minus_log_[strip][half]);
              if (Diagonal && !reads(16 * (group - strip) + 8 * (eight - half) + i)) weight[i] = 0.0f;
            }
            const float* dweight = dweights[strip][eight].value + 2 * half;
            uint32_t dpair = packed(dweight[0], dweight[1]);
            if constexpr (Dropout) {
              dpair = pairs.kept_or(dpair, packed(minus_delta, minus_delta), 2 * group + eight);
            }
            dscores[strip].part[2 * eight + half] = multiplied(packed(weight[0], weight[1]), dpair);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const RightFragments right = right_of(keys(block), row, 16 * i, lane_);
#pragma unroll
        for (int strip = 0; strip < kStrips; ++strip) {
          multiply_add(dquery_[strip][2 * i], dquery_[strip][2 * i + 1], dscores[strip], right);
        }
      }
    }
  }
  /// Whether the lane's first query reads a key that would be `apart` further on if its column were 0.
  __device__ bool reads(int apart) const {
    const LanePlace place = lane_place(lane_);
    return apart + place.column <= place.row;
  }

  __device__ void add_products(Sums (&sums)[kStrips][2], const LeftFragment (&left)[kStrips][kSteps],
                               Tile<HeadSize> tile, int row) const {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(tile, row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(sums[strip][0], sums[strip][1], left[strip][step], right);
      }
    }
  }

  LeftFragment query_[kStrips][kSteps], dread_[kStrips][kSteps];
  float minus_log_[kStrips][2];  ///< of the lane's rows
  Sums minus_delta_[kStrips];
  Sums dquery_[kStrips][Base::kEights];
};

// The second kernel

template <int HeadSize, bool Dropout>
class KeysBackward : LongBackward<HeadSize> {
  using Base = LongBackward<HeadSize>;
  using Base::job_, Base::own_, Base::gradients_, Base::warp_, Base::lane_, Base::kSteps;
  static constexpr int kStatistics = kPassingRows * static_cast<int>(sizeof(float));
  static constexpr int kKeys = 0, kValues = Base::kOwnTile, kPassing = 2 * Base::kOwnTile;
  static constexpr int kQueries = 0, kDread = Base::kPassingTile, kLogs = 2 * Base::kPassingTile,
                       kDeltas = kLogs + kStatistics, kWords = kDeltas + kStatistics,
                       kPassingBytes = kWords + (Dropout ? Base::kWordBytes : 0);

 public:
  static constexpr int kBytes = kPassing + 2 * kPassingBytes;

  __device__ KeysBackward(const Job& job, const OwnRows& own, char* shared) : Base(job, own, shared) {}

  __device__ void run() {
    const int thread = thread_anew(), tokens = job_.shape.tokens;
    start_copy_rows<kOwnRows>(this->tile_at(kKeys), job_.keys, own_, own_.first, tokens, thread);
    start_copy_rows<kOwnRows>(this->tile_at(kValues), job_.values, own_, own_.first, tokens, thread);
    fetch(first_block<Own::kKeys>(job_.shape, own_));
    copies_arrived();
    __syncthreads();
    take_keys();
    meet_passing_rows<Own::kKeys>(
        job_.shape, own_, [&](int block) { fetch(block); },
        [&](int block, int step, auto diagonal) { add_queries<decltype(diagonal)::kValue>(block, step); });
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      this->store(gradients_.keys, own_.first, 0, tokens, strip, this->tile_at(kKeys),
                  job_.scale / this->root(), dkey_[strip]);
      this->store(gradients_.values, own_.first, 0, tokens, strip, this->tile_at(kValues), job_.scale,
                  dvalue_[strip]);
    }
  }

 private:
  __device__ static int passing(int block) {
    return kPassing + block % 2 * kPassingBytes;
  }
  __device__ Tile<HeadSize> queries(int block) const {
    return this->tile_at(passing(block) + kQueries);
  }
  __device__ Tile<HeadSize> dread(int block) const {
    return this->tile_at(passing(block) + kDread);
  }
  __device__ float* log_sums(int block) const {
    return this->template values_at<float>(passing(block) + kLogs);
  }
  __device__ float* minus_deltas(int block) const {
    return this->template values_at<float>(passing(block) + kDeltas);
  }
  __device__ uint32_t* words(int block) const {
    return this->template values_at<uint32_t>(passing(block) + kWords);
  }
  /// Queries that do not exist have no log_sum and no dread, so that they add nothing.
  __device__ void fetch(int block) const {
    static_assert(kThreads == 2 * kPassingRows);
    const int first = row_of(job_.shape, kPassingRows * block), rows = job_.shape.rows,
              thread = thread_anew();
    start_copy_rows<kPassingRows>(queries(block), job_.queries, own_, first, rows, thread);
    start_copy_rows<kPassingRows>(dread(block), this->dread_rows(), own_, first, rows, thread);
    const int place = thread % kPassingRows, row = first + place;
    float* const to = thread < kPassingRows ? log_sums(block) : minus_deltas(block);
    const float* const from = thread < kPassingRows ? job_.log_sums : gradients_.minus_deltas;
    start_copy_or_clear(to + place, from + this->first_sum() + row, row >= 0 && row < rows);
    if constexpr (Dropout)
      start_copy_words<kPassingRows>(words(block), job_, own_, first, own_.first, thread);
  }

  __device__ void take_keys() {
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        key_[strip][step] = left_of(this->tile_at(kKeys), first_of(strip), 16 * step, lane_);
      }
#pragma unroll
      for (int i = 0; i < Base::kEights; ++i) dkey_[strip][i] = dvalue_[strip][i] = no_sums();
    }
  }
  __device__ int first_of(int strip) const {
    return kWarpRows * warp_ + kStrip * strip;
  }

  /// What 32 queries add to dk and dv. Scores lie with keys as rows.
  template <bool Diagonal>
  __device__ void add_queries(int block, int step) {
#pragma unroll 1
    for (int group = 0; group < kStepRows / 16; ++group) {
      lane_ = lane_anew();
      const int row = kStepRows * step + 16 * group;
      LeftFragment weights[kStrips], kept_weights[kStrips];
      weigh<Diagonal>(weights, block, row, group);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) kept_weights[strip] = weights[strip];
      if constexpr (Dropout) {
        for_masks(block, row,
                  [&](int strip, int part, uint32_t mask) { kept_weights[strip].part[part] &= mask; });
      }
      add_rows(dvalue_, kept_weights, dread(block), row);

      LeftFragment dscores[kStrips];
      find_dweights(dscores, block, row);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip)
        dscores[strip] = multiplied(weights[strip], dscores[strip]);
      add_rows(dkey_, dscores, queries(block), row);
    }
  }
  /// take(strip, part, mask) for the elements of fragments that are kept. Bits are fetched from shared memory
  /// each time, for want of registers.
  template <class Take>
  __device__ void for_masks(int block, int row, Take&& take) const {
    const LanePlace place = lane_place(lane_);
    const uint32_t* const of_query = words(block) + kPassingRows * warp_ + row + place.column;
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const uint2 kept = *reinterpret_cast<const uint2*>(of_query + 8 * eight);
      const uint32_t first = kept.x << (7 - place.row), second = kept.y << (7 - place.row);
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) take(i / 2, 2 * eight + i % 2, pair_mask(first, second, i));
    }
  }

  /// P, before dropout.
  template <bool Diagonal>
  __device__ void weigh(LeftFragment (&weights)[kStrips], int block, int row, int group) const {
    const LanePlace place = lane_place(lane_);
    Sums scores[kStrips][2];
#pragma unroll
    for (auto& of_strip : scores) of_strip[0] = of_strip[1] = no_sums();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(queries(block), row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(scores[strip][0], scores[strip][1], key_[strip][step], right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const float2 log = *reinterpret_cast<const float2*>(log_sums(block) + row + 8 * eight + place.column);
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) {
        const int strip = i / 2, half = i % 2;
        const float* score = scores[strip][eight].value + 2 * half;
        float weight[2] = {this->weight_of(score[0], -log.x), this->weight_of(score[1], -log.y)};
        if constexpr (Diagonal) {
          const int behind = 16 * (group - strip) + 8 * (eight - half) + place.column - place.row;
          if (behind < 0) weight[0] = 0.0f;
          if (behind + 1 < 0) weight[1] = 0.0f;
        }
        weights[strip].part[2 * eight + half] = packed(weight[0], weight[1]);
      }
    }
  }

  /// m · dread vᵀ − delta.
  __device__ void find_dweights(LeftFragment (&found)[kStrips], int block, int row) const {
    const float* const of_query = minus_deltas(block) + row + lane_place(lane_).column;
    Sums dweights[kStrips][2];
    uint32_t dropped[2];
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const Sums start = sums_from(of_query + 8 * eight);
      dropped[eight] = packed(start.value[0], start.value[1]);
#pragma unroll
      for (auto& of_strip : dweights) of_strip[eight] = start;
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const RightFragments right = right_of_transposed(dread(block), row, 16 * step, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        const LeftFragment value = left_of(this->tile_at(kValues), first_of(strip), 16 * step, lane_);
        multiply_add(dweights[strip][0], dweights[strip][1], value, right);
      }
    }
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
#pragma unroll
      for (int i = 0; i < 2 * kStrips; ++i) {
        const int strip = i / 2, half = i % 2;
        const float* dweight = dweights[strip][eight].value + 2 * half;
        found[strip].part[2 * eight + half] = packed(dweight[0], dweight[1]);
      }
    }
    if constexpr (Dropout) {
      for_masks(block, row, [&](int strip, int part, uint32_t mask) {
        uint32_t& pair = found[strip].part[part];
        pair = (pair & mask) | (dropped[part / 2] & ~mask);
      });
    }
  }

  /// sums += left · 16 rows.
  __device__ void add_rows(Sums (&sums)[kStrips][Base::kEights], const LeftFragment (&left)[kStrips],
                           Tile<HeadSize> tile, int row) const {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const RightFragments right = right_of(tile, row, 16 * i, lane_);
#pragma unroll
      for (int strip = 0; strip < kStrips; ++strip) {
        multiply_add(sums[strip][2 * i], sums[strip][2 * i + 1], left[strip], right);
      }
    }
  }

  LeftFragment key_[kStrips][kSteps];
  Sums dkey_[kStrips][Base::kEights], dvalue_[kStrips][Base::kEights];
};

template <int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kThreads, 2) long_queries_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.of_queries.rows<Own::kQueries>(blockIdx.x);
  __syncthreads();
  QueriesBackward<HeadSize, Dropout>(job, own, dynamic_shared_memory()).run();
}

template <int HeadSize, bool Dropout>
__global__ void __launch_bounds__(kThreads, 2) long_keys_backward_kernel(const __grid_constant__ Job job) {
  __shared__ OwnRows own;
  if (threadIdx.x == 0) own = job.of_keys.rows<Own::kKeys>(blockIdx.x);
  __syncthreads();
  KeysBackward<HeadSize, Dropout>(job, own, dynamic_shared_memory()).run();
}

template <int HeadSize, bool Dropout>
void launch(const Job& job, cudaStream_t stream) {
  gpu::launch("long_queries_backward_kernel", long_queries_backward_kernel<HeadSize, Dropout>,
              job.of_queries.blocks(), kThreads, QueriesBackward<HeadSize, Dropout>::kBytes, stream, job);
  gpu::launch("long_keys_backward_kernel", long_keys_backward_kernel<HeadSize, Dropout>, job.of_keys.blocks(),
              kThreads, KeysBackward<HeadSize, Dropout>::kBytes, stream, job);
}

}  // namespace

void long_attention_backward(const HeadAttention& attention, const HeadAttentionGradients& gradients,
                             cudaStream_t stream) {
  const int first_query = attention.shape.tokens - attention.shape.rows - gradients.rows_before;
  const Job job = {attention, gradients, BlockOrder::of(attention.shape, first_query),
                   BlockOrder::of(attention.shape, 0)};
  const bool dropout = attention.keep != nullptr;
  if (attention.shape.width / attention.shape.heads == 32) {
    return dropout ? launch<32, true>(job, stream) : launch<32, false>(job, stream);
  }
  return dropout ? launch<64, true>(job, stream) : launch<64, false>(job, stream);
}

}  // namespace adtrain::kernels
