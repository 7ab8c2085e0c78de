#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/Launch.cuh"
#include "base/Random.h"
#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
/// A thread has about so many words of one random stream, to spread the cost of the stream's first state.
/// What the words are for follows from the shape of a sequence's masks alone, not from how many sequences a
/// GPU has.
constexpr int kStreamWords = 8;

/// Multiply with carry: MWC64X (Thomas, 2011), period 2^63. It takes two instructions per word; Philox takes
/// ten.
class WordStream {
 public:
  __device__ explicit WordStream(uint64_t random) : state_((random >> 32) % (kMultiplier - 2) + 1) {
    // The carry is neither 0 nor the multiplier − 1, so that the period is full.
    state_ = state_ << 32 | (random & 0xffffffffu);
  }
  __device__ uint32_t next() {
    const uint32_t low = static_cast<uint32_t>(state_), carry = static_cast<uint32_t>(state_ >> 32);
    state_ = uint64_t{low} * kMultiplier + carry;
    return low ^ carry;
  }

 private:
  static constexpr uint32_t kMultiplier = 4294883355u;
  uint64_t state_;
};

/// Returns a word whose bits are set with the probability `digits` / 2^kDigits. A bit is set where a random
/// binary fraction is below the probability. The loop compares 32 fractions at once, from the probability's
/// last nonzero digit to its first. At a digit of 0, fractions stay below only if they draw a 0 (and). At a
/// digit of 1, fractions that draw a 0 are below (or). By De Morgan's law the or is an and of complements,
/// and a complement of random bits is random too. So each digit takes `(word & drawn) ^ complement`.
template <int kDigits>
__device__ uint32_t keep_word(WordStream& random, uint32_t digits) {
  const auto ones = [&](int digit) { return digit < kDigits ? 0u - (digits >> digit & 1u) : 0u; };
  uint32_t word = ones(0);
#pragma unroll
  for (int digit = 0; digit < kDigits; ++digit) {
    word = (word & random.next()) ^ (ones(digit) ^ ones(digit + 1));
  }
  return word;
}

/// The random streams of a call: the same number in each sequence.
struct Streams {
  const int64_t *seed, *sequences;
  uint64_t key;  ///< of the call's place
  unsigned of_sequence, all;

  Streams(const MaskSource& source, int64_t of_each)
      : seed(source.seed),
        sequences(source.sequences),
        key(mix_bits(source.place)),
        of_sequence(static_cast<unsigned>(of_each)),
        all(static_cast<unsigned>(source.sequence_count * of_each)) {}

  unsigned blocks() const { return (all + kThreads - 1) / kThreads; }
  /// Of a stream of the sequence that is the call's `sequence`th.
  __device__ WordStream words(unsigned sequence, unsigned stream) const {
    const auto number = static_cast<uint64_t>(sequences[sequence]) * of_sequence + stream;
    return WordStream(seed_of(static_cast<uint64_t>(*seed) ^ key, number));
  }
};

constexpr int64_t streams_for(int64_t words) {
  return (words + kStreamWords - 1) / kStreamWords;
}

/// A thread has a stream: every so many of a sequence's words in one of the matrices.
template <int kDigits>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint32_t* words, const __grid_constant__ MaskMatrices matrices, int64_t sequence_count,
                uint32_t digits, const __grid_constant__ Streams streams) {
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= streams.all) return;
  const unsigned sequence = thread / streams.of_sequence, stream = thread % streams.of_sequence;
  WordStream random = streams.words(sequence, stream);
  int64_t first = stream;
  for (int matrix = 0; matrix < matrices.count; ++matrix) {
    const int64_t count = matrices.words[matrix], step = streams_for(count);
    if (first < step) {
      uint32_t* of_sequence = words + sequence * count;
      for (int64_t word = first; word < count; word += step) {
        of_sequence[word] = keep_word<kDigits>(random, digits);
      }
      return;
    }
    first -= step;
    words += sequence_count * count;
  }
}

/// How many rows of a head have one stream: an even number, so that late rows, which read more keys, are
/// paired with early ones.
constexpr int rows_of_stream(const AttentionRows& shape) {
  return 2 * (shape.row_words() < kStreamWords ? kStreamWords / shape.row_words() : 1);
}
constexpr int streams_of_head(const AttentionRows& shape) {
  return (shape.rows + rows_of_stream(shape) - 1) / rows_of_stream(shape);
}

/// A thread has a stream, for some rows of a head. Neighbouring threads take neighbouring rows.
template <int kDigits>
__global__ void __launch_bounds__(kThreads)
    fill_attention_kernel(uint32_t* words, const __grid_constant__ AttentionRows shape, uint32_t digits,
                          const __grid_constant__ Streams streams) {
  const unsigned thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= streams.all) return;
  const int of_head = streams_of_head(shape);
  const int64_t head = thread / static_cast<unsigned>(of_head);
  const int own = static_cast<int>(thread % static_cast<unsigned>(of_head));
  WordStream random = streams.words(thread / streams.of_sequence, thread % streams.of_sequence);
  uint32_t* of_head_words = words + head * shape.row_words() * shape.rows;
  for (int k = 0; k < rows_of_stream(shape); ++k) {
    const int row = k % 2 == 0 ? k * of_head + own : (k + 1) * of_head - 1 - own;
    if (row >= shape.rows) continue;
    uint32_t* word = of_head_words + row;
    for (int left = shape.words_read(row); left > 0; --left, word += shape.rows) {
      *word = keep_word<kDigits>(random, digits);
    }
  }
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

}  // namespace

KeepProbability::KeepProbability(double dropout_rate)
    : kept_(std::clamp(static_cast<int>(std::lround((1.0 - dropout_rate) * kSteps)), 0, kSteps)) {}

void fill_dropout_mask(uint32_t* words, const MaskMatrices& matrices, const MaskSource& source,
                       cudaStream_t stream) {
  const int64_t count = source.sequence_count * matrices.words_of_sequence();
  if (filled_alike(words, count, source.probability, stream)) return;
  int64_t of_sequence = 0;
  for (int matrix = 0; matrix < matrices.count; ++matrix) of_sequence += streams_for(matrices.words[matrix]);
  const Streams streams(source, of_sequence);
  with_digits(source.probability.kept(), [&](auto digit_count, uint32_t digits) {
    gpu::launch("fill_kernel", fill_kernel<decltype(digit_count)::value>, streams.blocks(), kThreads, 0,
                stream, words, matrices, source.sequence_count, digits, streams);
  });
}

void fill_attention_dropout_mask(uint32_t* words, const AttentionRows& rows, const MaskSource& source,
                                 cudaStream_t stream) {
  if (filled_alike(words, rows.words(), source.probability, stream)) return;
  const Streams streams(source, rows.heads / source.sequence_count * streams_of_head(rows));
  with_digits(source.probability.kept(), [&](auto digit_count, uint32_t digits) {
    gpu::launch("fill_attention_kernel", fill_attention_kernel<decltype(digit_count)::value>,
                streams.blocks(), kThreads, 0, stream, words, rows, digits, streams);
  });
}

}  // namespace adtrain::kernels
