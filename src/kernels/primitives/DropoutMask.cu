#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/Launch.cuh"
#include "base/Random.h"
#include "kernels/primitives/DropoutMask.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kMostWords = 32;    ///< of one thread, to spread the cost of its first state
constexpr int64_t kBlocks = 512;  ///< enough to fill a GPU; with few words, each thread makes fewer

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

/// The random words of one thread.
__device__ WordStream words_from(const int64_t* seed, uint64_t number, int64_t thread) {
  return WordStream(seed_of(static_cast<uint64_t>(*seed), number, thread));
}

template <int kDigits>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint32_t* words, int64_t count, uint32_t digits, const int64_t* seed, uint64_t number) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x,
                threads = int64_t{gridDim.x} * kThreads;
  WordStream random = words_from(seed, number, thread);
  for (int64_t word = thread; word < count; word += threads) words[word] = keep_word<kDigits>(random, digits);
}

/// A thread block works on `heads_at_once` heads at a time. Each head gets an equal number of threads, which
/// take neighbouring rows.
template <int kDigits>
__global__ void __launch_bounds__(kThreads)
    fill_attention_kernel(uint32_t* words, AttentionRows shape, int heads_at_once, uint32_t digits,
                          const int64_t* seed, uint64_t number) {
  const int threads_a_head = kThreads / heads_at_once;
  const int own_head = threadIdx.x / threads_a_head, first_row = threadIdx.x % threads_a_head;
  if (own_head >= heads_at_once) return;
  WordStream random = words_from(seed, number, int64_t{blockIdx.x} * kThreads + threadIdx.x);
  for (int64_t head = int64_t{blockIdx.x} * heads_at_once + own_head; head < shape.heads;
       head += int64_t{gridDim.x} * heads_at_once) {
    for (int row = first_row; row < shape.rows; row += threads_a_head) {
      uint32_t* word = words + head * shape.row_words() * shape.rows + row;
      for (int left = shape.words_read(row); left > 0; --left, word += shape.rows) {
        *word = keep_word<kDigits>(random, digits);
      }
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

/// Returns the number of thread blocks for `count` pieces. A block takes at most `most` pieces one after
/// another, and fewer where the GPU would otherwise not be full.
unsigned blocks_for(int64_t count, int64_t most) {
  return static_cast<unsigned>(std::max(gpu::divided_up(count, most), std::min(count, kBlocks)));
}

}  // namespace

KeepProbability::KeepProbability(double dropout_rate)
    : kept_(std::clamp(static_cast<int>(std::lround((1.0 - dropout_rate) * kSteps)), 0, kSteps)) {}

void fill_dropout_mask(uint32_t* words, int64_t count, const MaskSource& source, cudaStream_t stream) {
  if (filled_alike(words, count, source.probability, stream)) return;
  with_digits(source.probability.kept(), [&](auto digit_count, uint32_t digits) {
    gpu::launch("fill_kernel", fill_kernel<decltype(digit_count)::value>,
                blocks_for(gpu::divided_up(count, kThreads), kMostWords), kThreads, 0, stream, words, count,
                digits, source.seed, source.number);
  });
}

void fill_attention_dropout_mask(uint32_t* words, const AttentionRows& rows, const MaskSource& source,
                                 cudaStream_t stream) {
  if (filled_alike(words, rows.words(), source.probability, stream)) return;
  const int heads_at_once = std::max(kThreads / rows.rows, 1);
  const int64_t words_a_head = gpu::divided_up(rows.rows, kThreads / heads_at_once) * rows.row_words();
  with_digits(source.probability.kept(), [&](auto digit_count, uint32_t digits) {
    gpu::launch("fill_attention_kernel", fill_attention_kernel<decltype(digit_count)::value>,
                blocks_for(gpu::divided_up(rows.heads, heads_at_once),
                           std::max(kMostWords / words_a_head, int64_t{1})),
                kThreads, 0, stream, words, rows, heads_at_once, digits, source.seed, source.number);
  });
}

}  // namespace adtrain::kernels
