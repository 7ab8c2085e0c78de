#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/Launch.cuh"
#include "base/Random.h"
#include "kernels/primitives/DropoutMask.h"
#include "kernels/primitives/EarlyStart.cuh"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
/// A thread has about so many words of one random stream, to spread the cost of the stream's first state.
/// What the words are for follows from the shape of a sequence's masks alone, not from how many sequences a
/// GPU has.
constexpr int kStreamWords = 16;

/// Division of a number below 2^31 by a constant of the launch, of which the host takes the reciprocal. It
/// takes the GPU two instructions; a division takes twenty.
class Divider {
 public:
  explicit Divider(uint32_t by) : by_(by) {
    while (uint64_t{1} << (shift_ - 31) < by) ++shift_;
    multiplier_ = static_cast<uint32_t>(((uint64_t{1} << shift_) + by - 1) / by);
  }
  constexpr uint32_t by() const { return by_; }
  __device__ uint32_t quotient(uint32_t of) const {
    return static_cast<uint32_t>(uint64_t{of} * multiplier_ >> shift_);
  }
  __device__ uint32_t remainder(uint32_t of) const { return of - quotient(of) * by_; }

 private:
  uint32_t by_, multiplier_;
  int shift_ = 31;
};

/// Multiply with carry (Marsaglia, 1994), period 2^62 with this multiplier (of Press et al., Numerical
/// Recipes, 2007). It takes two instructions per word; Philox takes ten.
class WordStream {
 public:
  __device__ explicit WordStream(uint64_t random)
      : word_(static_cast<uint32_t>(random)),
        // Neither 0 nor the multiplier − 1, so that the period is full.
        carry_(static_cast<uint32_t>((random >> 32) * (kMultiplier - 2) >> 32) + 1) {}
  __device__ uint32_t next() {
    const uint32_t word = word_;
    const uint64_t state = uint64_t{word} * kMultiplier + carry_;
    word_ = static_cast<uint32_t>(state);
    carry_ = static_cast<uint32_t>(state >> 32);
    return word;
  }

 private:
  static constexpr uint32_t kMultiplier = 2654432763u;
  uint32_t word_, carry_;
};

/// Words whose bits are set with the probability `digits` / 2^kDigits, which is odd / 2^kDigits. A bit is set
/// where a random binary fraction is below the probability. The loop compares 32 fractions at once, from the
/// probability's last digit to its first. At a digit of 0, fractions stay below only if they draw a 0 (and).
/// At a digit of 1, fractions that draw a 0 are below (or). By De Morgan's law the or is an and of
/// complements, and a complement of random bits is random too. So the word is complemented where the next
/// digit differs, and each digit takes `(word ^ complement) & drawn`, one instruction.
template <int kDigits>
class KeepWords {
 public:
  __device__ explicit KeepWords(uint32_t digits) {
#pragma unroll
    for (int digit = 0; digit < kDigits; ++digit) {
      complement_[digit] = 0u - ((digits ^ digits >> 1) >> digit & 1u);
    }
  }
  __device__ uint32_t next(WordStream& random) const {
    uint32_t word = random.next();
#pragma unroll
    for (int digit = 1; digit < kDigits; ++digit) word = (word ^ complement_[digit - 1]) & random.next();
    return word ^ complement_[kDigits - 1];
  }

 private:
  uint32_t complement_[kDigits];
};

/// The random streams of a call: the same number in each sequence. A thread has one.
struct Streams {
  const int64_t *seed, *sequences;
  uint64_t key;  ///< of the call's place
  Divider of_sequence;
  unsigned all;

  Streams(const MaskSource& source, int64_t of_each)
      : seed(source.seed),
        sequences(source.sequences),
        key(mix_bits(source.place)),
        of_sequence(static_cast<uint32_t>(of_each)),
        all(static_cast<unsigned>(source.sequence_count * of_each)) {}

  unsigned blocks() const { return (all + kThreads - 1) / kThreads; }
  /// Of a stream of the sequence that is the call's `sequence`th.
  __device__ WordStream words(unsigned sequence, unsigned stream) const {
    const auto number = static_cast<uint64_t>(sequences[sequence]) * of_sequence.by() + stream;
    return WordStream(seed_of(static_cast<uint64_t>(*seed) ^ key, number));
  }
};

constexpr int64_t streams_for(int64_t words) {
  return (words + kStreamWords - 1) / kStreamWords;
}

/// The masks of matrices. A stream has every so many of a sequence's words in one of them.
struct MatrixFill {
  uint32_t* words;
  MaskMatrices matrices;
  int64_t sequence_count;
  Streams streams;

  MatrixFill(uint32_t* to, const MaskMatrices& of_matrices, const MaskSource& source)
      : words(to),
        matrices(of_matrices),
        sequence_count(source.sequence_count),
        streams(source, streams_of(of_matrices)) {}

  static int64_t streams_of(const MaskMatrices& matrices) {
    int64_t sum = 0;
    for (int matrix = 0; matrix < matrices.count; ++matrix) sum += streams_for(matrices.words[matrix]);
    return sum;
  }

  template <int kDigits>
  __device__ void fill(unsigned thread, const KeepWords<kDigits>& kept) const {
    const unsigned sequence = streams.of_sequence.quotient(thread);
    const unsigned stream = streams.of_sequence.remainder(thread);
    WordStream random = streams.words(sequence, stream);
    uint32_t* to = words;
    int first = static_cast<int>(stream), count = 0, step = 0;
    for (int matrix = 0; matrix < matrices.count; ++matrix) {
      count = static_cast<int>(matrices.words[matrix]);
      step = static_cast<int>(streams_for(count));
      if (first < step) break;
      first -= step;
      to += sequence_count * count;
    }
    to += int64_t{sequence} * count + first;
    // One loop for all matrices, so that a warp with streams of two does not run it twice.
#pragma unroll 1
    for (int left = count - first; left > 0; left -= step, to += step) *to = kept.next(random);
  }
};

/// The mask of attention weights. A stream has some rows of a head, and neighbouring streams have
/// neighbouring rows.
struct AttentionFill {
  uint32_t* words;
  AttentionRows shape;
  int stream_rows;  ///< an even number, so that late rows, which read more keys, are paired with early ones
  Divider of_head;  ///< streams
  Streams streams;

  AttentionFill(uint32_t* to, const AttentionRows& rows, const MaskSource& source)
      : words(to),
        shape(rows),
        stream_rows(2 * std::max(kStreamWords / (2 * rows.row_words()), 1)),
        of_head(static_cast<uint32_t>((rows.rows + stream_rows - 1) / stream_rows)),
        streams(source, rows.heads / source.sequence_count * of_head.by()) {}

  template <int kDigits>
  __device__ void fill(unsigned thread, const KeepWords<kDigits>& kept) const {
    const int own = static_cast<int>(of_head.remainder(thread)), step = static_cast<int>(of_head.by());
    WordStream random =
        streams.words(streams.of_sequence.quotient(thread), streams.of_sequence.remainder(thread));
    uint32_t* const of_head_words =
        words + int64_t{of_head.quotient(thread)} * shape.row_words() * shape.rows;
    for (int k = 0; k < stream_rows; ++k) {
      const int row = k % 2 == 0 ? k * step + own : (k + 1) * step - 1 - own;
      if (row >= shape.rows) continue;
      uint32_t* word = of_head_words + row;
#pragma unroll 1
      for (int left = shape.words_read(row); left > 0; --left, word += shape.rows) *word = kept.next(random);
    }
  }
};

/// `digits`: the probability of keeping, times 2^kDigits.
template <int kDigits, class Fill>
__global__ void __launch_bounds__(kThreads) fill_kernel(const __grid_constant__ Fill fill, uint32_t digits) {
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread < fill.streams.all) fill.fill(thread, KeepWords<kDigits>(digits));
}

/// Both at once: thread blocks before `first_of_matrices` fill the mask of attention weights.
template <int kDigits>
__global__ void __launch_bounds__(kThreads) fill_both_kernel(const __grid_constant__ AttentionFill attention,
                                                             const __grid_constant__ MatrixFill matrices,
                                                             unsigned first_of_matrices, uint32_t digits) {
  let_next_kernel_start();  // a block, whose weights were complete before the kernel ahead let this one
                            // start
  const KeepWords<kDigits> kept(digits);
  if (blockIdx.x < first_of_matrices) {
    const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
    if (thread < attention.streams.all) attention.fill(thread, kept);
  } else {
    const unsigned thread = (blockIdx.x - first_of_matrices) * kThreads + threadIdx.x;
    if (thread < matrices.streams.all) matrices.fill(thread, kept);
  }
  // So that the kernels ahead have ended when this one has; other thread blocks make room.
  if (blockIdx.x == 0) await_kernels_ahead();
}

/// Calls launch(number of digits, digits) without the trailing zero digits.
template <int kDigits = KeepProbability::kDigits, class Launch>
void with_digits(uint32_t digits, const Launch& launch) {
  if constexpr (kDigits > 1) {
    if (digits % 2 == 0) return with_digits<kDigits - 1>(digits / 2, launch);
  }
  launch(std::integral_constant<int, kDigits>(), digits);
}

/// Fills the words where all bits are equal, so that no random numbers are needed. Returns whether it did.
bool filled_alike(uint32_t* words, int64_t count, KeepProbability probability, cudaStream_t stream) {
  if (count == 0) return true;
  if (!probability.always() && probability.kept() != 0) return false;
  gpu::check(cudaMemsetAsync(words, probability.always() ? 0xff : 0, count * sizeof(uint32_t), stream),
             "cudaMemsetAsync");
  return true;
}

template <class Fill>
void launch_fill(const Fill& fill, KeepProbability probability, cudaStream_t stream) {
  with_digits(probability.kept(), [&](auto digit_count, uint32_t digits) {
    gpu::launch("fill_kernel", fill_kernel<decltype(digit_count)::value, Fill>, fill.streams.blocks(),
                kThreads, 0, stream, fill, digits);
  });
}

}  // namespace

KeepProbability::KeepProbability(double dropout_rate) {
  constexpr double kTolerance = 0.02;
  const double wanted = 1.0 - dropout_rate, tolerated = kTolerance * std::min(wanted, dropout_rate);
  for (int digits = 1; digits <= kDigits; ++digits) {
    const int steps = 1 << digits;
    const auto kept = static_cast<int>(std::lround(wanted * steps));
    kept_ = kept << (kDigits - digits);
    if (std::abs(value() - wanted) <= tolerated) return;
  }
}

void fill_dropout_mask(uint32_t* words, const MaskMatrices& matrices, const MaskSource& source,
                       cudaStream_t stream) {
  const int64_t count = source.sequence_count * matrices.words_of_sequence();
  if (filled_alike(words, count, source.probability, stream)) return;
  launch_fill(MatrixFill(words, matrices, source), source.probability, stream);
}

void fill_attention_dropout_mask(uint32_t* words, const AttentionRows& rows, const MaskSource& source,
                                 cudaStream_t stream) {
  if (filled_alike(words, rows.words(), source.probability, stream)) return;
  launch_fill(AttentionFill(words, rows, source), source.probability, stream);
}

void fill_block_dropout_masks(uint32_t* attention_words, const AttentionRows& rows,
                              const MaskSource& of_attention, uint32_t* words, const MaskMatrices& matrices,
                              const MaskSource& of_matrices, bool beside_kernel_ahead, cudaStream_t stream) {
  const KeepProbability& probability = of_matrices.probability;
  if (probability.kept() != of_attention.probability.kept() || probability.kept() == 0 ||
      probability.always()) {
    fill_attention_dropout_mask(attention_words, rows, of_attention, stream);
    return fill_dropout_mask(words, matrices, of_matrices, stream);
  }
  const AttentionFill attention(attention_words, rows, of_attention);
  const MatrixFill others(words, matrices, of_matrices);
  with_digits(probability.kept(), [&](auto digit_count, uint32_t digits) {
    launch_early_where(beside_kernel_ahead, "fill_both_kernel",
                       fill_both_kernel<decltype(digit_count)::value>,
                       attention.streams.blocks() + others.streams.blocks(), kThreads, 0, stream, attention,
                       others, attention.streams.blocks(), digits);
  });
}

}  // namespace adtrain::kernels
