#include <algorithm>
#include <cmath>

#include "base/Cuda.h"
#include "model/kernels/fused/BlockForward.h"
#include "model/kernels/fused/Tile.cuh"

/// A post-norm block's forward pass in one kernel. Thread blocks stay for the whole launch, one a
/// multiprocessor, with all weights in shared memory. A thread block is two groups of 8 warps; each works on
/// sequences of its own, so that one's products run beside the other's exponentials. A group takes a sequence
/// in two phases:
///
///     A. its warps project strips of 16 tokens to keys and values, in shared memory;
///     B. each warp takes strips of tokens that read these, up to two of a stream, through all the rest in
///        registers: heads one after the other, output projection, norm, MLP in chunks of hidden units, norm.
///
/// Keys and values of a second stream's tokens are read by these tokens alone: phase B makes them, in
/// registers.
///
/// Shared memory, D = width, T = 256, the most tokens (that addresses are constants is worth more than room),
/// G = 2 groups; in all 226.9 of 227 KiB where D = 64:
///
///     in_proj  (3 D, D)  6 D² bytes              whole launch; columns in feature order
///     out_proj (D, D)    2 D² bytes              whole launch; rows in feature order
///     linear1  (4 D, D)  8 D² bytes              whole launch; columns in feature order
///     linear2  (D, 4 D)  8 D² bytes              whole launch; rows in feature order
///     keys     (T, D)    2 D T bytes, G of them  a sequence's x, once the sequence before has been read; its
///                                                keys, from A until its last query has read
///     values   (T, D)    2 D T bytes, G of them  from A until the last query has read
///     biases   (9 D)     36 D bytes, fp32        whole launch
///     norms    (4 D)     8 D bytes               whole launch: weights and biases of the norms
///     longest  (2, 8)    64 bytes, G of them     |key|² at most, by head: of this sequence, from A until its
///                                                last query has read; zeros for the next sequence
///
/// Feature order. A lane holds pairs of neighbouring columns, 8 apart, so 16 bytes of a row in memory would
/// fall to four lanes. The residual stream's features therefore stand in another order in fragments: of 32
/// neighbouring ones, the lane with columns 2 q and 2 q + 1 of each 8 holds features 8 q … 8 q + 7. It moves
/// them with one access, and the four lanes of a row move 64 bytes side by side. A product does not mind in
/// which order it sums features.
namespace adtrain::kernels {
namespace {

constexpr int kGroups = 2;
constexpr int kGroupWarps = 8;
constexpr int kGroupThreads = kGroupWarps * kWarp;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kMostHeads = 8;
constexpr int kMostTokens = 256;
constexpr float kNormEpsilon = 1e-5f;
constexpr float kLog2E = 1.44269504f;

/// What a launch works on.
struct Job {
  BlockShape shape;
  BlockWeights weights;
  KeepBits keep;
  BlockActivations activations;
  Bf16* y;
};

/// Where in fragments a feature of the residual stream stands, and which feature stands in a place: pairs
/// change places as in the transpose of a 4 × 4 matrix.
__device__ constexpr int feature_order(int feature) {
  return (feature & ~30) | (feature & 6) << 2 | (feature >> 2 & 6);
}

/// The kernel's shared memory as the warps of one group see it.
template <int Width>
struct Memory {
  Tile<Width> in_proj, out_proj, linear1;
  Tile<4 * Width> linear2;
  Tile<Width> keys, values;
  float *in_proj_bias, *out_proj_bias, *linear1_bias, *linear2_bias;
  Bf16 *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
  float* longest;  ///< (2, kMostHeads)

  static constexpr int bytes() { return kWeights + kVectors + kGroups * (kLongest + 2 * kTokens); }

  __device__ Memory(char* start, int group) {
    char* free = start;
    const auto take = [&](int bytes) {
      char* taken = free;
      free += bytes;
      return taken;
    };
    const auto take_tile = [&](int bytes) { return reinterpret_cast<Bf16*>(take(bytes)); };
    in_proj = {take_tile(Tile<Width>::bytes(3 * Width))};
    out_proj = {take_tile(Tile<Width>::bytes(Width))};
    linear1 = {take_tile(Tile<Width>::bytes(4 * Width))};
    linear2 = {take_tile(Tile<4 * Width>::bytes(Width))};
    free += group * 2 * kTokens;
    keys = {take_tile(kTokens)};
    values = {take_tile(kTokens)};
    free = start + kWeights + kGroups * 2 * kTokens;
    in_proj_bias = reinterpret_cast<float*>(take(3 * kFloats));
    out_proj_bias = reinterpret_cast<float*>(take(kFloats));
    linear1_bias = reinterpret_cast<float*>(take(4 * kFloats));
    linear2_bias = reinterpret_cast<float*>(take(kFloats));
    norm1_weight = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm1_bias = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm2_weight = reinterpret_cast<Bf16*>(take(kFloats / 2));
    norm2_bias = reinterpret_cast<Bf16*>(take(kFloats / 2));
    longest = reinterpret_cast<float*>(free + group * kLongest);
  }

 private:
  static constexpr int kFloats = Width * static_cast<int>(sizeof(float));
  static constexpr int kWeights = Tile<Width>::bytes(12 * Width), kVectors = 9 * kFloats + 4 * kFloats / 2;
  static constexpr int kTokens = Tile<Width>::bytes(kMostTokens);
  static constexpr int kLongest = 2 * kMostHeads * static_cast<int>(sizeof(float));
};
static_assert(Memory<64>::bytes() <= 227 * 1024, "a thread block's shared memory");

template <int Width>
__device__ void copy_in_feature_order_of_columns(Tile<Width> tile, const Bf16* from, int rows) {
  for (int chunk = threadIdx.x; chunk < rows * (Width / 8); chunk += blockDim.x) {
    const int row = chunk / (Width / 8), column = feature_order(8 * (chunk % (Width / 8)));
    const uint4 pairs = *reinterpret_cast<const uint4*>(from + 8 * chunk);
    tile.set_pair(row, column, pairs.x);
    tile.set_pair(row, column + 8, pairs.y);
    tile.set_pair(row, column + 16, pairs.z);
    tile.set_pair(row, column + 24, pairs.w);
  }
}
template <int Columns>
__device__ void copy_in_feature_order_of_rows(Tile<Columns> tile, const Bf16* from, int rows) {
  for (int chunk = threadIdx.x; chunk < rows * (Columns / 8); chunk += blockDim.x) {
    const int row = chunk / (Columns / 8), column = 8 * (chunk % (Columns / 8));
    start_copy(tile.at(feature_order(row), column), from + 8 * chunk);
  }
}
template <class To>
__device__ void copy_vector(To* to, const Bf16* from, int size) {
  for (int i = threadIdx.x; i < size; i += blockDim.x) to[i] = from[i];
}

/// By all threads, for all of them.
template <int Width>
__device__ void copy_weights(const Memory<Width>& memory, const BlockWeights& from) {
  copy_in_feature_order_of_rows(memory.out_proj, from.out_proj_weight, Width);
  copy_in_feature_order_of_rows(memory.linear2, from.linear2_weight, Width);
  copy_in_feature_order_of_columns(memory.in_proj, from.in_proj_weight, 3 * Width);
  copy_in_feature_order_of_columns(memory.linear1, from.linear1_weight, 4 * Width);
  copy_vector(memory.in_proj_bias, from.in_proj_bias, 3 * Width);
  copy_vector(memory.out_proj_bias, from.out_proj_bias, Width);
  copy_vector(memory.linear1_bias, from.linear1_bias, 4 * Width);
  copy_vector(memory.linear2_bias, from.linear2_bias, Width);
  copy_vector(memory.norm1_weight, from.norm1_weight, Width);
  copy_vector(memory.norm1_bias, from.norm1_bias, Width);
  copy_vector(memory.norm2_weight, from.norm2_weight, Width);
  copy_vector(memory.norm2_bias, from.norm2_bias, Width);
}

__device__ float exp2_of(float value) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}
__device__ float tanh_of(float value) {
  asm("tanh.approx.f32 %0, %0;" : "+f"(value));
  return value;
}

/// 2 gelu(h).
__device__ float twice_gelu(float h) {
  constexpr float kLinear = 0.797884561f, kCubic = 0.0356774081f;  // √(2/π), and 0.044715 times that
  return fmaf(h, tanh_of(h * fmaf(kCubic, h * h, kLinear)), h);
}

__device__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// sums += left · right, over 8: the first or, which = 1, second 8 columns of `left`.
__device__ void multiply_add_8(Sums& sums, const LeftFragment& left, int which, uint32_t right) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums.value[0]), "+f"(sums.value[1]), "+f"(sums.value[2]), "+f"(sums.value[3])
      : "r"(left.part[2 * which]), "r"(left.part[2 * which + 1]), "r"(right));
}

/// The lane's number, read anew: what is computed from it cannot be computed ahead of this. Each part of the
/// kernel begins with it, or all the lane's places in all tiles would stand in registers throughout.
__device__ unsigned lane_anew() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Accumulators that begin with a bias, `pair` being the lane's two elements of it. It is read once for each
/// row: accumulators are neighbouring registers, and to copy a pair from one to another costs more than to
/// read it.
__device__ Sums sums_from(const float* pair) {
  Sums sums;
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[0]), "=f"(sums.value[1])
               : "r"(shared_address(pair)));
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[2]), "=f"(sums.value[3])
               : "r"(shared_address(pair)));
  return sums;
}

/// Which pairs of 16-bit values are kept, of the lane's two columns in each 8 of 32: a word's bit is a
/// column.
class KeptPairs {
 public:
  KeptPairs() = default;
  __device__ KeptPairs(uint32_t word, unsigned lane)
      : first_(word << (7 - lane_place(lane).column)), second_(word << (6 - lane_place(lane).column)) {}

  /// The pair in columns 8 · eight + {column, column + 1}, with zeros for what is dropped. Its bits are the
  /// highest of byte `eight`, which are what prmt repeats.
  __device__ uint32_t kept(uint32_t pair, int eight) const {
    uint32_t mask;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first_), "r"(second_), "r"(0xcc88 + 0x1111 * eight));
    return pair & mask;
  }

 private:
  uint32_t first_, second_;
};

/// 16 tokens of a sequence as queries, and where what becomes of them goes.
struct Strip {
  int sequence;
  bool second;  ///< of the second stream
  int number;   ///< its tokens begin at 16 · number of the stream; less than 0 for none
  int rows;     ///< that come out of a sequence
  int end;      ///< of these, behind the stream's last one
  int row;      ///< and the lane's first; the second is 8 further down

  __device__ Strip(const BlockShape& shape, int sequence_number, bool of_second, int strip_number)
      : sequence(sequence_number),
        second(of_second),
        number(strip_number),
        rows(shape.rows),
        end(of_second ? shape.rows : shape.rows - shape.queries),
        row(kStrip * strip_number + lane_place().row + end - shape.tokens) {}

  __device__ int first_row() const { return row - lane_place().row; }
  /// Whether any of it comes out.
  __device__ bool exists() const { return number >= 0 && first_row() > -kStrip; }
  /// Whether the lane's first row or, half = 1, its second comes out.
  __device__ bool comes_out(int half) const {
    return static_cast<unsigned>(row + 8 * half) < static_cast<unsigned>(end);
  }
  /// The first row's place among those of all sequences, which an int can count, as they would not fit in
  /// memory otherwise; and in one of many stretches of as many rows.
  __device__ int64_t place() const { return sequence * rows + row; }
  __device__ int64_t place(int stretch) const { return int64_t{stretch} * rows + row; }
};

/// A strip of the residual stream: 16 rows × Width features, in feature order, as left operand.
template <int Width>
struct Features {
  LeftFragment step[Width / 16];

  static __device__ Features rounded(const Sums (&values)[Width / 8]) {
    Features features;
#pragma unroll
    for (int i = 0; i < Width / 16; ++i) features.step[i] = as_left(values[2 * i], values[2 * i + 1]);
    return features;
  }

  /// Rows from the matrix `from` (rows, Width) on; those beyond its end are 0.
  static __device__ Features loaded(const Bf16* from, int row, int rows, unsigned lane) {
    const LanePlace place = lane_place(lane);
    Features features;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = row + place.row + 8 * half;
      const Bf16* at = from + min(own, rows - 1) * Width + 4 * place.column;
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const uint4 eight = __ldg(reinterpret_cast<const uint4*>(at + 32 * block));
        features.set(block, half, own < rows ? eight : uint4{0, 0, 0, 0});
      }
    }
    return features;
  }
  /// Rows from `row` on of a tile.
  static __device__ Features loaded(Tile<Width> from, int row, unsigned lane) {
    const LanePlace place = lane_place(lane);
    Features features;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const Bf16* at = from_row(from, row + 8 * half).at(place.row, 32 * block + 4 * place.column);
        features.set(block, half, *reinterpret_cast<const uint4*>(at));
      }
    }
    return features;
  }

  /// To the rows of a strip that come out, in the matrix `to` (S · R, Width).
  __device__ void store(Bf16* to, const Strip& strip, unsigned lane) const {
    Bf16* at = to + strip.place() * Width + 4 * lane_place(lane).column;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int block = 0; block < Width / 32; ++block) {
        const uint4 eight = {step[2 * block].part[half], step[2 * block].part[half + 2],
                             step[2 * block + 1].part[half], step[2 * block + 1].part[half + 2]};
        if (strip.comes_out(half)) *reinterpret_cast<uint4*>(at + 8 * half * Width + 32 * block) = eight;
      }
    }
  }

  /// Of 8 columns, the lane's two in its first row or, half = 1, its second.
  __device__ float2 pair(int eight, int half) const {
    return unpacked(step[eight / 2].part[2 * (eight % 2) + half]);
  }

 private:
  /// The lane's features of 32, side by side in memory.
  __device__ void set(int block, int half, const uint4& eight) {
    step[2 * block].part[half] = eight.x;
    step[2 * block].part[half + 2] = eight.y;
    step[2 * block + 1].part[half] = eight.z;
    step[2 * block + 1].part[half + 2] = eight.w;
  }
};

/// Where the lane's pair of 8 columns stands in a vector over the features.
__device__ int feature_of_lane(unsigned lane, int eight) {
  return 32 * (eight / 4) + 4 * lane_place(lane).column + 2 * (eight % 4);
}

template <int Width>
__device__ void start_from_bias(Sums (&sums)[Width / 8], const float* bias, unsigned lane) {
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) {
    sums[eight] = sums_from(bias + feature_of_lane(lane, eight));
  }
}

/// A sequence in the hands of a group.
template <int Width>
struct Sequence {
  const Job& job;
  const Memory<Width>& memory;
  int number;
  int warp;    ///< of the group
  int parity;  ///< of the sequences that the group has taken before

  __device__ Sequence next() const {
    return {job, memory, number + kGroups * static_cast<int>(gridDim.x), warp, 1 - parity};
  }
  __device__ float* longest() const { return memory.longest + parity * kMostHeads; }
  /// Its first stream's, or its second's.
  __device__ const Bf16* x(bool second) const {
    const int64_t before = int64_t{number} * job.shape.length() + (second ? job.shape.tokens : 0);
    return job.activations.x + before * Width;
  }
};

/// Starts to copy the strips of this warp to where their keys will stand. Rows beyond the last token repeat
/// it, so that nothing that is multiplied by a weight of 0 is infinite. Of a sequence that there is not,
/// nothing.
template <int Width>
__device__ void start_tokens(const Sequence<Width>& sequence) {
  constexpr int kChunks = Width / 8, kRows = kWarp / kChunks;  // of 16 bytes in a row; at once
  const int tokens = sequence.job.shape.tokens;
  if (sequence.number >= sequence.job.shape.sequences) return;
  const int lane = threadIdx.x % kWarp, column = 8 * (lane % kChunks);
  const Bf16* x = sequence.x(false) + column;
#pragma unroll 1
  for (int first = kStrip * sequence.warp; first < tokens; first += kStrip * kGroupWarps) {
#pragma unroll
    for (int i = 0; i < kStrip; i += kRows) {
      const int row = first + i + lane / kChunks;
      start_copy(sequence.memory.keys.at(row, column), x + min(row, tokens - 1) * Width);
    }
  }
}

/// Of `Eights` · 8 columns, the lane's in its first row or, half = 1, its second.
template <int Eights>
__device__ float squares_of(const Sums* sums, int half) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < Eights; ++i) {
    const float* value = sums[i].value + 2 * half;
    squares = fmaf(value[0], value[0], fmaf(value[1], value[1], squares));
  }
  return squares;
}

/// Phase A for the strips of this warp, which start_tokens() has started to copy.
template <int Width, int HeadSize>
__device__ void project_keys_and_values(const Sequence<Width>& sequence) {
  constexpr int kHeads = Width / HeadSize, kPart = std::min(HeadSize, 16);
  const Memory<Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();
  copies_arrived();
  __syncwarp();

  // Over the strips, the greatest sum of squares over those columns of a part of a head that are the lane's.
  float longest[Width / kPart] = {};
#pragma unroll 1
  for (int row = kStrip * sequence.warp; row < sequence.job.shape.tokens; row += kStrip * kGroupWarps) {
    const auto x = Features<Width>::loaded(memory.keys, row, lane);
#pragma unroll
    for (int third = 1; third < 3; ++third) {
#pragma unroll
      for (int column = 0; column < Width; column += 32) {  // enough for no product to wait for the last
        const int out = third * Width + column;
        Sums sums[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[i] = sums_from(memory.in_proj_bias + out + 8 * i + lane_place(lane).column);
        }
#pragma unroll
        for (int step = 0; step < Width / 16; ++step) {
          if (step % 2 == 0) __syncwarp();  // or the compiler loads ahead more than there are registers for
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply_add(sums[2 * i], sums[2 * i + 1], x.step[step],
                         right_of_transposed(memory.in_proj, out + 16 * i, 16 * step, lane));
          }
        }
        if (third == 1) {
#pragma unroll
          for (int part = 0; part < 32 / kPart; ++part) {
            const Sums* of_part = sums + part * (kPart / 8);
            float& most = longest[column / kPart + part];
            most = fmaxf(most, fmaxf(squares_of<kPart / 8>(of_part, 0), squares_of<kPart / 8>(of_part, 1)));
          }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          set_left(third == 1 ? memory.keys : memory.values, row, column + 16 * i,
                   as_left(sums[2 * i], sums[2 * i + 1]), lane);
        }
      }
    }
  }

  float of_lane = 0.0f;
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    float sum = 0.0f;  // of maxima, so at least the maximum of sums
#pragma unroll
    for (int part = 0; part < HeadSize / kPart; ++part) {
      float most = longest[head * (HeadSize / kPart) + part];
#pragma unroll
      for (int other = 4; other < kWarp; other *= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, other));
      }
      sum += quad_sum(most);
    }
    if (lane == head) of_lane = sum;
  }
  if (lane < kHeads) {  // floats that are not negative are in the order of their bits
    atomicMax(reinterpret_cast<unsigned*>(sequence.longest() + lane), __float_as_uint(of_lane));
  }
}

/// Which keys a strip reads: whole tiles of 16 first, perhaps one of which the rows read different parts.
struct Reach {
  int whole;         ///< tiles that all rows read
  bool partly;       ///< whether tile `whole` is read in part
  uint32_t keys[2];  ///< which of its keys the lane's two rows read

  __device__ Reach(const BlockShape& shape, const Strip& strip, unsigned lane) {
    const int tokens_left = shape.tokens & (kStrip - 1);
    whole = shape.causal ? strip.number : shape.tokens >> 4;
    partly = shape.causal || tokens_left != 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int before = lane_place(lane).row + 8 * half;
      keys[half] = (1u << (shape.causal ? before + !strip.second : tokens_left)) - 1;
    }
  }
};

/// Dropout's words for a few heads and the lane's two rows, from the first 32 keys on.
template <int Heads, bool Dropout>
class AttentionWords {
 public:
  /// `head`: the first one's number among all sequences' heads.
  __device__ AttentionWords(const Job& job, const Strip& strip, int head) : strip_(strip) {
    const int words_of_head = (job.shape.tokens + 31) >> 5;
    const int first = head * words_of_head;
#pragma unroll
    for (int i = 0; i < Heads; ++i) next_[i] = job.keep.attention + strip.place(first + i * words_of_head);
    load();
  }

  struct Words {
    uint32_t of[Heads][2];
  };
  /// Those of the next 32 keys. `more`: whether others will be asked for; these are on their way from memory
  /// then.
  __device__ Words next(bool more) {
    const Words now = words_;
    if (more) load();
    return now;
  }

 private:
  __device__ void load() {
#pragma unroll
    for (int i = 0; i < Heads; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (strip_.comes_out(half)) words_.of[i][half] = __ldg(next_[i] + 8 * half);
      }
      next_[i] += strip_.rows;
    }
  }

  const Strip& strip_;
  const uint32_t* next_[Heads];
  Words words_ = {};
};
template <int Heads>
class AttentionWords<Heads, false> {
 public:
  __device__ AttentionWords(const Job&, const Strip&, int) {}
  struct Words {
    uint32_t of[Heads][2];
  };
  __device__ Words next(bool) { return {}; }
};

/// What a strip reads through one head or, where heads are of 8, two neighbours at a time: 16 columns fill a
/// fragment.
template <int Width, int HeadSize, bool Dropout, bool Streams>
class HeadsRead {
 public:
  static constexpr int kColumns = std::max(HeadSize, 16);
  static constexpr int kHeads = kColumns / HeadSize;
  static constexpr int kSteps = kColumns / 16;

  __device__ HeadsRead(const Sequence<Width>& sequence, const Strip& strip, int column)
      : sequence_(sequence),
        strip_(strip),
        column_(column),
        lane_(lane_anew()),
        reach_(sequence.job.shape, strip, lane_) {
#pragma unroll
    for (Sums& sums : read_) sums = no_sums();
#pragma unroll
    for (Sums& sums : total_) sums = no_sums();
  }

  /// Queries of the heads from x, such that their products with keys are exponents of 2; and what they start
  /// from.
  __device__ void ask(const Features<Width>& x) {
    const float scale = kLog2E / std::sqrt(static_cast<float>(HeadSize));
    Sums queries[kColumns / 8];
    project_own(queries, 0, x);
#pragma unroll
    for (Sums& sums : queries) {
#pragma unroll
      for (float& value : sums.value) value *= scale;
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) query_[i] = as_left(queries[2 * i], queries[2 * i + 1]);
    if (has_own_keys()) score_own(x);
    start_scores(queries);
  }

  /// Reads all keys within reach; x as before.
  __device__ void read(const Features<Width>& x) {
    AttentionWords<kHeads, Dropout> words(sequence_.job, strip_, head_number(0));
    const int tiles = reach_.whole + reach_.partly;
    int tile = 0;
#pragma unroll 1
    for (; tile + 2 <= reach_.whole; tile += 2) {
      const Words now = words.next(tile + 2 < tiles);
      if (kHeads * kSteps == 1) {
        read_tiles<2, false>(tile, now, 0);
      } else {  // enough to do at a time
        read_tiles<1, false>(tile, now, 0);
        read_tiles<1, false>(tile + 1, now, 2);
      }
    }
    Words last = words.next(false);
    if (tile < reach_.whole) {
      read_tiles<1, false>(tile, last, 0);
#pragma unroll
      for (auto& of_head : last.of) {
        of_head[0] >>= kStrip;
        of_head[1] >>= kStrip;
      }
    }
    if (reach_.partly) read_tiles<1, true>(reach_.whole, last, 0);
    if (has_own_keys()) read_own(x, last);
  }

  /// Writes what was read, and adds its projection to `out`.
  __device__ void project(Sums (&out)[Width / 8]) {
    const BlockActivations& activations = sequence_.job.activations;
    const LanePlace place = lane_place(lane_);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      float* log_sums = activations.log_sums + strip_.place(head_number(head));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float total = total_[head].value[2 * half];
        if (strip_.comes_out(half) && place.column == 0) {
          log_sums[8 * half] = __log2f(total) - start_[head].value[2 * half];
        }
        const float share = __fdividef(Dropout ? sequence_.job.keep.attention_scale : 1.0f, total);
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          read_[eight].value[2 * half] *= share;
          read_[eight].value[2 * half + 1] *= share;
        }
      }
    }
    Bf16* to = activations.read + strip_.place() * Width + column_ + place.column;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const LeftFragment read = as_left(read_[2 * step], read_[2 * step + 1]);
#pragma unroll
      for (int i = 0; i < Width / 16; ++i) {
        multiply_add(out[2 * i], out[2 * i + 1], read,
                     right_of_transposed(sequence_.memory.out_proj, 16 * i, column_ + 16 * step, lane_));
      }
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        uint32_t* at = reinterpret_cast<uint32_t*>(to + part % 2 * 8 * Width + 16 * step + part / 2 * 8);
        if (strip_.comes_out(part % 2)) *at = read.part[part];
      }
    }
  }

 private:
  using Words = typename AttentionWords<kHeads, Dropout>::Words;

  /// Of these heads' `head`, its number among all sequences' heads.
  __device__ int head_number(int head) const {
    return strip_.sequence * (Width / HeadSize) + column_ / HeadSize + head;
  }

  /// In a second stream each token reads itself, not the first stream's token in its place.
  __device__ bool has_own_keys() const {
    return Streams && strip_.second;
  }

  /// The strip's own x through the heads' columns in a third of in_proj: queries, keys or values.
  __device__ void project_own(Sums (&sums)[kColumns / 8], int third, const Features<Width>& x) const {
    const Memory<Width>& memory = sequence_.memory;
    const int out = third * Width + column_;
#pragma unroll
    for (int eight = 0; eight < kColumns / 8; ++eight) {
      sums[eight] = sums_from(memory.in_proj_bias + out + 8 * eight + lane_place(lane_).column);
    }
#pragma unroll
    for (int step = 0; step < Width / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        multiply_add(sums[2 * i], sums[2 * i + 1], x.step[step],
                     right_of_transposed(memory.in_proj, out + 16 * i, 16 * step, lane_));
      }
    }
  }

  __device__ void score_own(const Features<Width>& x) {
    Sums keys[kColumns / 8];
    project_own(keys, 1, x);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = 0.0f;
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float* value = keys[eight].value + 2 * half;
          const float2 key = unpacked(packed(value[0], value[1]));
          const float2 query = unpacked(query_[eight / 2].part[2 * (eight % 2) + half]);
          sum = fmaf(query.x, key.x, fmaf(query.y, key.y, sum));
        }
        own_score_[head][half] = quad_sum(sum);
      }
    }
  }

  /// `words`: dropout's for the tile in the strip's place.
  __device__ void read_own(const Features<Width>& x, const Words& words) {
    Sums values[kColumns / 8];
    project_own(values, 2, x);
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float weight = exp2_of(own_score_[head][half] + start_[head].value[2 * half]);
        total_[head].value[2 * half] += weight;
        if (Dropout && (words.of[head][half] >> (lane_place(lane_).row + 8 * half) & 1) == 0) weight = 0.0f;
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float* value = values[eight].value + 2 * half;
          float* read = read_[eight].value + 2 * half;
          read[0] = fmaf(weight, value[0], read[0]);
          read[1] = fmaf(weight, value[1], read[1]);
        }
      }
    }
  }

  /// Scores start from −m, m a row's greatest score. Where none can be too great for exp2, 0 will do for m.
  __device__ void start_scores(const Sums (&queries)[kColumns / 8]) {
    constexpr float kSafe = 60.0f;
    bool safe = true;
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      start_[head] = no_sums();
      float squares[2] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int eight = head; eight < kColumns / 8; eight += kHeads) {
          const float* value = queries[eight].value + 2 * half;
          squares[half] = fmaf(value[0], value[0], fmaf(value[1], value[1], squares[half]));
        }
      }
      // Cauchy and Schwarz; of the two rows, what is greater in each lane.
      const float query = quad_sum(fmaxf(squares[0], squares[1]));
      safe = safe && query * sequence_.longest()[column_ / HeadSize + head] <= kSafe * kSafe;
      if (has_own_keys()) safe = safe && fmaxf(own_score_[head][0], own_score_[head][1]) <= kSafe;
    }
    if (!__all_sync(kAllLanes, safe)) start_from_greatest();
  }

  __device__ void start_from_greatest() {
    float greatest[kHeads][2];
#pragma unroll
    for (int i = 0; i < 2 * kHeads; ++i) {
      greatest[i / 2][i % 2] = has_own_keys() ? own_score_[i / 2][i % 2] : -INFINITY;
    }
#pragma unroll 1
    for (int tile = 0; tile < reach_.whole + reach_.partly; ++tile) {
      Sums scores[kHeads][2];
      score(scores, tile);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int half = i / 2 % 2, key = i / 4 * 8 + lane_place(lane_).column + i % 2;
          if (tile < reach_.whole || (reach_.keys[half] >> key & 1) != 0) {
            greatest[head][half] = fmaxf(greatest[head][half], scores[head][i / 4].value[i % 4]);
          }
        }
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
#pragma unroll
      for (int i = 0; i < 4; ++i) start_[head].value[i] = -quad_max(greatest[head][i / 2]);
    }
  }

  /// Scores of 16 keys, minus m: {keys 0-7, keys 8-15} for each head.
  __device__ void score(Sums (&scores)[kHeads][2], int tile) const {
    RightFragments right[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      right[step] = right_of_transposed(sequence_.memory.keys, kStrip * tile, column_ + 16 * step, lane_);
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      scores[head][0] = scores[head][1] = start_[head];
      if (kHeads == 2) {
        multiply_add_8(scores[head][0], query_[0], head, right[0].part[head]);
        multiply_add_8(scores[head][1], query_[0], head, right[0].part[head + 2]);
      } else {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          multiply_add(scores[head][0], scores[head][1], query_[step], right[step]);
        }
      }
    }
  }

  /// Adds the values of `Tiles` · 16 keys, each with its weight, and the weights. The keys' bits are those
  /// from 8 · `eight` on.
  template <int Tiles, bool Partly>
  __device__ void read_tiles(int first, const Words& words, int eight) {
    constexpr uint32_t kOnes = 0x3f803f80u;
    Sums scores[Tiles][kHeads][2];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) score(scores[tile], first + tile);
    LeftFragment weights[Tiles][kHeads];
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
#pragma unroll
        for (Sums& sums : scores[tile][head]) {
#pragma unroll
          for (float& value : sums.value) value = exp2_of(value);
        }
        LeftFragment& of_head = weights[tile][head];
        of_head = as_left(scores[tile][head][0], scores[tile][head][1]);
        if (Partly) keep_pairs(of_head, reach_.keys, 0);
        multiply_add(total_[head], of_head, kOnes, kOnes);
        if (Dropout) keep_pairs(of_head, words.of[head], eight + 2 * tile);
      }
    }
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const RightFragments right =
            right_of(sequence_.memory.values, kStrip * (first + tile), column_ + 16 * step, lane_);
        if (kHeads == 2) {
          multiply_add(read_[0], weights[tile][0], right.part[0], right.part[1]);
          multiply_add(read_[1], weights[tile][1], right.part[2], right.part[3]);
        } else {
          multiply_add(read_[2 * step], read_[2 * step + 1], weights[tile][0], right);
        }
      }
    }
  }

  /// Zeros for weights whose bits, from 8 · eight on, are not set in the words of the lane's two rows.
  __device__ void keep_pairs(LeftFragment& weights, const uint32_t (&words)[2], int eight) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const KeptPairs pairs(words[half], lane_);
      weights.part[half] = pairs.kept(weights.part[half], eight);
      weights.part[half + 2] = pairs.kept(weights.part[half + 2], eight + 1);
    }
  }

  const Sequence<Width>& sequence_;
  const Strip& strip_;
  int column_;  ///< of the first head
  unsigned lane_;
  Reach reach_;
  LeftFragment query_[kSteps];
  float own_score_[kHeads][2];  ///< of the lane's two rows
  Sums start_[kHeads];          ///< −m
  Sums total_[kHeads];          ///< of weights, the same in all columns
  Sums read_[kColumns / 8];
};

/// x + drop(branch) -> branch, fp32. `words`: dropout's (S · R, Width / 32).
template <int Width, bool Dropout>
__device__ void add_residual(Sums (&branch)[Width / 8], const Features<Width>& x, const Strip& strip,
                             const uint32_t* words, float scale, unsigned lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t* of_row = words + (strip.place() + 8 * half) * (Width / 32);
#pragma unroll
    for (int block = 0; block < Width / 32; ++block) {
      uint32_t kept = 0;  // bit i: the lane's feature i of the 32 here
      if (Dropout && strip.comes_out(half)) kept = __ldg(of_row + block) >> 4 * lane_place(lane).column;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = branch[4 * block + i / 2].value[2 * half + i % 2];
        const float2 residual = x.pair(4 * block + i / 2, half);
        const float own = i % 2 == 0 ? residual.x : residual.y;
        if (Dropout) {
          value = fmaf((kept >> i & 1) != 0 ? value : 0.0f, scale, own);
        } else {
          value += own;
        }
      }
    }
  }
}

/// A norm's arrays.
struct Norm {
  const Bf16 *weight, *bias;  ///< in shared memory
  Bf16* normed;
  float* inverse;
};

/// Normalises the rows, in fp32, and writes what the backward pass needs of that.
template <int Width>
__device__ Features<Width> layer_norm(Sums (&values)[Width / 8], const Norm& norm, const Strip& strip,
                                      unsigned lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = 0.0f;
#pragma unroll
    for (const Sums& sums : values) sum += sums.value[2 * half] + sums.value[2 * half + 1];
    const float mean = quad_sum(sum) * (1.0f / Width);
    float squares = 0.0f;
#pragma unroll
    for (Sums& sums : values) {
      float* value = sums.value + 2 * half;
      value[0] -= mean;
      value[1] -= mean;
      squares = fmaf(value[0], value[0], fmaf(value[1], value[1], squares));
    }
    const float inverse = rsqrtf(fmaf(quad_sum(squares), 1.0f / Width, kNormEpsilon));
#pragma unroll
    for (Sums& sums : values) {
      sums.value[2 * half] *= inverse;
      sums.value[2 * half + 1] *= inverse;
    }
    if (strip.comes_out(half) && lane % 4 == 0) norm.inverse[strip.place() + 8 * half] = inverse;
  }
  Features<Width>::rounded(values).store(norm.normed, strip, lane);

#pragma unroll
  for (int block = 0; block < Width / 32; ++block) {
    const uint4 weight = *reinterpret_cast<const uint4*>(norm.weight + feature_of_lane(lane, 4 * block));
    const uint4 bias = *reinterpret_cast<const uint4*>(norm.bias + feature_of_lane(lane, 4 * block));
    const uint32_t weights[4] = {weight.x, weight.y, weight.z, weight.w};
    const uint32_t biases[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float(&value)[4] = values[4 * block + i].value;
      const float2 by = unpacked(weights[i]), plus = unpacked(biases[i]);
      value[0] = fmaf(value[0], by.x, plus.x);
      value[1] = fmaf(value[1], by.y, plus.y);
      value[2] = fmaf(value[2], by.x, plus.x);
      value[3] = fmaf(value[3], by.y, plus.y);
    }
  }
  return Features<Width>::rounded(values);
}

/// out_proj(attention of x).
template <int Width, int HeadSize, bool Dropout, bool Streams>
__device__ void attend(Sums (&out)[Width / 8], const Features<Width>& x, const Sequence<Width>& sequence,
                       const Strip& strip) {
  using Heads = HeadsRead<Width, HeadSize, Dropout, Streams>;
  start_from_bias<Width>(out, sequence.memory.out_proj_bias, lane_anew());
#pragma unroll 1
  for (int column = 0; column < Width; column += Heads::kColumns) {
    Heads heads(sequence, strip, column);
    heads.ask(x);
    heads.read(x);
    heads.project(out);
  }
}

/// linear2(drop(gelu(linear1(x1)))).
template <int Width, bool Dropout>
__device__ void mlp(Sums (&out)[Width / 8], const Features<Width>& x1, const Sequence<Width>& sequence,
                    const Strip& strip) {
  constexpr int kInner = 4 * Width;
  constexpr int kChunk = 64;  // so that a chunk's columns of linear2 are a tile of their own
  const KeepBits& keep = sequence.job.keep;
  const Memory<Width>& memory = sequence.memory;
  const unsigned lane = lane_anew();
  const uint32_t* words = keep.inner + strip.place() * (kInner / 32);

#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) out[eight] = no_sums();
#pragma unroll 1
  for (int chunk = 0; chunk < kInner; chunk += kChunk) {
    const Tile<kInner> linear2 = {memory.linear2.data + chunk};
    uint32_t word[2][kChunk / 32] = {};
    if (Dropout) {
#pragma unroll
      for (int i = 0; i < 2 * kChunk / 32; ++i) {
        if (strip.comes_out(i % 2)) word[i % 2][i / 2] = __ldg(words + i % 2 * 8 * (kInner / 32) + i / 2);
      }
      words += kChunk / 32;
    }
    Sums hidden[kChunk / 8];
#pragma unroll
    for (int eight = 0; eight < kChunk / 8; ++eight) {
      hidden[eight] = sums_from(memory.linear1_bias + chunk + 8 * eight + lane_place(lane).column);
    }
#pragma unroll
    for (int step = 0; step < Width / 16; ++step) {
#pragma unroll
      for (int i = 0; i < kChunk / 16; ++i) {
        multiply_add(hidden[2 * i], hidden[2 * i + 1], x1.step[step],
                     right_of_transposed(memory.linear1, chunk + 16 * i, 16 * step, lane));
      }
    }
#pragma unroll
    for (int step = 0; step < kChunk / 16; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& value = hidden[2 * step + i / 4].value[i % 4];
        value = twice_gelu(value);
      }
      LeftFragment active = as_left(hidden[2 * step], hidden[2 * step + 1]);
      if (Dropout) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const KeptPairs pairs(word[half][step / 2], lane);
          active.part[half] = pairs.kept(active.part[half], 2 * (step % 2));
          active.part[half + 2] = pairs.kept(active.part[half + 2], 2 * (step % 2) + 1);
        }
      }
#pragma unroll
      for (int i = 0; i < Width / 16; ++i) {
        multiply_add(out[2 * i], out[2 * i + 1], active,
                     right_of_transposed(linear2, 16 * i, 16 * step, lane));
      }
    }
  }
  const float scale = Dropout ? 0.5f * keep.hidden_scale : 0.5f;
#pragma unroll
  for (int eight = 0; eight < Width / 8; ++eight) {
    const float2 bias = *reinterpret_cast<const float2*>(memory.linear2_bias + feature_of_lane(lane, eight));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[eight].value[i] = fmaf(out[eight].value[i], scale, i % 2 == 0 ? bias.x : bias.y);
    }
  }
}

/// From the attention's projected output, `sums`, to the block's.
template <int Width, bool Dropout>
__device__ void finish(Sums (&sums)[Width / 8], const Features<Width>& x, const Sequence<Width>& sequence,
                       const Strip& strip) {
  const Job& job = sequence.job;
  const Memory<Width>& memory = sequence.memory;
  const BlockActivations& kept = job.activations;
  unsigned lane = lane_anew();
  add_residual<Width, Dropout>(sums, x, strip, job.keep.projection, job.keep.hidden_scale, lane);
  const Norm norm1 = {memory.norm1_weight, memory.norm1_bias, kept.normed1, kept.inverse1};
  const Features<Width> x1 = layer_norm<Width>(sums, norm1, strip, lane);

  mlp<Width, Dropout>(sums, x1, sequence, strip);
  lane = lane_anew();
  add_residual<Width, Dropout>(sums, x1, strip, job.keep.output, job.keep.hidden_scale, lane);
  const Norm norm2 = {memory.norm2_weight, memory.norm2_bias, kept.normed2, kept.inverse2};
  layer_norm<Width>(sums, norm2, strip, lane).store(job.y, strip, lane);
}

/// Which strips warps take. In the order of their lengths, where later tokens read more, eight strips go to
/// warps 0 … 7, the next eight to warps 7 … 0, and so forth; of both streams in turn, if there is something
/// to do for both.
template <bool Streams>
class Turns {
 public:
  static constexpr int kMost = Streams ? 4 : 2;

  __device__ Turns(const BlockShape& shape, int warp)
      : shape_(shape), warp_(warp), both_(Streams && shape.rows > shape.queries) {
    for (int turn = 1; turn < kMost; ++turn) {
      if (strip(0, turn).exists()) count_ = turn + 1;
    }
  }

  /// At least one.
  __device__ int count() const { return count_; }
  __device__ Strip strip(int sequence, int turn) const {
    const int place = kGroupWarps * turn + (turn % 2 == 0 ? warp_ : kGroupWarps - 1 - warp_);
    const bool second = Streams && (!both_ || place % 2 == 0);
    return {shape_, sequence, second, (shape_.tokens - 1) / kStrip - (both_ ? place / 2 : place)};
  }

 private:
  const BlockShape& shape_;
  int warp_;
  bool both_;
  int count_ = 1;
};

/// Asks for the bits that the warp will read for a strip, each lane for some.
template <int Width, int HeadSize>
__device__ void prefetch_bits(const Job& job, const Strip& strip) {
  const BlockShape& shape = job.shape;
  const KeepBits& keep = job.keep;
  constexpr int kHeads = Width / HeadSize, kAtOnce = kWarp / 8;  // the words of as many rows
  const int lane = lane_anew();
  const int words = (shape.tokens + 31) >> 5, word = lane % 8;
  const int first_row = max(strip.first_row(), 0);
  if (word < (shape.causal ? strip.number / 2 + 1 : words)) {
#pragma unroll
    for (int first = 0; first < kHeads; first += kAtOnce) {
      const int head = first + lane / 8;
      const int64_t of_word = int64_t{(strip.sequence * kHeads + head) * words + word} * shape.rows;
      if (head < kHeads) prefetch(keep.attention + of_word + first_row);
    }
  }
  const int64_t row = strip.sequence * shape.rows + min(first_row + lane % kStrip, shape.rows - 1);
  if (lane < kStrip) prefetch(keep.inner + row * (Width / 8));
  prefetch((lane < kStrip ? keep.projection : keep.output) + row * (Width / 32));
}

template <int Width, int HeadSize, bool Dropout, bool Streams>
__global__ void __launch_bounds__(kThreads, 1) block_forward_kernel(const __grid_constant__ Job job) {
  extern __shared__ __align__(128) char shared[];
  const BlockShape& shape = job.shape;
  const int group = threadIdx.x / kGroupThreads, warp = threadIdx.x / kWarp % kGroupWarps;
  const Memory<Width> memory(shared, group);
  copy_weights(memory, job.weights);
  if (threadIdx.x % kGroupThreads < 2 * kMostHeads) memory.longest[threadIdx.x % kGroupThreads] = 0.0f;
  copies_arrived();
  __syncthreads();

  const Turns<Streams> turns(shape, warp);
  int number = group * gridDim.x + blockIdx.x, parity = 0;
  start_tokens(Sequence<Width>{job, memory, number, warp, parity});
#pragma unroll 1
  for (; number < shape.sequences; number += kGroups * gridDim.x, parity = 1 - parity) {
    const Sequence<Width> sequence = {job, memory, number, warp, parity};
    if (Dropout) {
#pragma unroll 1
      for (int turn = 0; turn < turns.count(); ++turn) {
        const Strip strip = turns.strip(number, turn);
        if (strip.exists()) prefetch_bits<Width, HeadSize>(job, strip);
      }
    }
    project_keys_and_values<Width, HeadSize>(sequence);
    group_barrier(1 + group, kGroupThreads);

    if (threadIdx.x % kGroupThreads < kMostHeads) {
      sequence.next().longest()[threadIdx.x % kGroupThreads] = 0.0f;
    }
#pragma unroll 1
    for (int turn = 0; turn < turns.count(); ++turn) {
      const Strip strip = turns.strip(number, turn);
      Features<Width> x;
      Sums sums[Width / 8];
      if (strip.exists()) {
        x = Features<Width>::loaded(sequence.x(strip.second), kStrip * strip.number, shape.tokens,
                                    lane_anew());
        attend<Width, HeadSize, Dropout, Streams>(sums, x, sequence, strip);
      }
      if (turn + 1 == turns.count()) {  // keys and values are needed no longer, in this warp now and in all
                                        // behind the barrier
        group_barrier(1 + group, kGroupThreads);
        start_tokens(sequence.next());
      }
      if (strip.exists()) finish<Width, Dropout>(sums, x, sequence, strip);
    }
  }
}

template <int Width, int HeadSize, bool Dropout, bool Streams>
void launch(const Job& job, cudaStream_t stream) {
  const auto kernel = block_forward_kernel<Width, HeadSize, Dropout, Streams>;
  constexpr int bytes = Memory<Width>::bytes();
  gpu::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "cudaFuncSetAttribute");
  int device = 0, multiprocessors = 0;
  gpu::check(cudaGetDevice(&device), "cudaGetDevice");
  gpu::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  kernel<<<std::min(multiprocessors, job.shape.sequences), kThreads, bytes, stream>>>(job);
  gpu::check(cudaGetLastError(), "The launch of block_forward_kernel");
}

template <int Width, int HeadSize>
void launch(const Job& job, cudaStream_t stream) {
  const bool dropout = job.keep.attention != nullptr;
  if (job.shape.queries > 0) {
    return dropout ? launch<Width, HeadSize, true, true>(job, stream)
                   : launch<Width, HeadSize, false, true>(job, stream);
  }
  return dropout ? launch<Width, HeadSize, true, false>(job, stream)
                 : launch<Width, HeadSize, false, false>(job, stream);
}

template <int Width>
void launch(const Job& job, cudaStream_t stream) {
  switch (job.shape.width / job.shape.heads) {
    case 8:
      return launch<Width, 8>(job, stream);
    case 16:
      return launch<Width, 16>(job, stream);
    default:
      return launch<Width, 32>(job, stream);
  }
}

}  // namespace

void block_forward(const BlockShape& shape, const BlockWeights& weights, const KeepBits& keep,
                   const BlockActivations& activations, __nv_bfloat16* y, cudaStream_t stream) {
  const Job job = {shape, weights, keep, activations, y};
  return shape.width == 64 ? launch<64>(job, stream) : launch<32>(job, stream);
}

}  // namespace adtrain::kernels
