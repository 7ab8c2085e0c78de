#include <algorithm>
#include <cmath>

#include "base/Launch.cuh"
#include "base/Random.h"
#include "model/kernels/KeepBits.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWordsAThread = 32;  ///< the cost of a thread's first state is shared out over them

/// Multiply with carry: MWC64X (Thomas, 2011), period 2^63. Two instructions a word, where Philox takes ten.
class WordStream {
 public:
  __device__ explicit WordStream(uint64_t random) : state_((random >> 32) % (kMultiplier - 2) + 1) {
    state_ = state_ << 32 |
             (random & 0xffffffffu);  // the carry is neither 0 nor the multiplier − 1: a full period
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

/// A bit is set where a random binary fraction is below the probability. The digits are compared from the
/// last one that is not 0, for 32 fractions at once: a digit of 1 lets those below that draw 0 (or), one of 0
/// keeps what is below.
template <int kDigits>
__device__ uint32_t keep_word(WordStream& random, uint32_t digits) {
  uint32_t word = 0;
#pragma unroll
  for (int digit = 0; digit < kDigits; ++digit) {
    const uint32_t ones = 0u - (digits >> digit & 1u), drawn = random.next();
    word = (word & drawn) | (ones & (word | drawn));
  }
  return word;
}

template <int kDigits>
__global__ void fill_kernel(uint32_t* words, int64_t count, uint32_t digits, const int64_t* seed,
                            uint64_t stream_of_seed) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x,
                threads = int64_t{gridDim.x} * kThreads;
  WordStream random(seed_of(static_cast<uint64_t>(*seed), stream_of_seed, thread));
  for (int64_t word = thread; word < count; word += threads) words[word] = keep_word<kDigits>(random, digits);
}

/// Leaves out the digits behind the last 1.
template <int kDigits = KeepProbability::kDigits>
void launch(int64_t blocks, cudaStream_t stream, uint32_t* words, int64_t count, uint32_t digits,
            const int64_t* seed, uint64_t stream_of_seed) {
  if constexpr (kDigits > 1) {
    if (digits % 2 == 0) {
      launch<kDigits - 1>(blocks, stream, words, count, digits / 2, seed, stream_of_seed);
      return;
    }
  }
  gpu::launch("fill_kernel", fill_kernel<kDigits>, static_cast<unsigned>(blocks), kThreads, 0, stream, words,
              count, digits, seed, stream_of_seed);
}

}  // namespace

KeepProbability::KeepProbability(double dropout_rate)
    : kept_(std::clamp(static_cast<int>(std::lround((1.0 - dropout_rate) * kSteps)), 0, kSteps)) {}

void fill_keep_bits(uint32_t* words, int64_t count, KeepProbability probability, const int64_t* seed,
                    uint64_t stream_of_seed, cudaStream_t stream) {
  if (count == 0) return;
  if (probability.always() || probability.kept() == 0) {
    gpu::check(cudaMemsetAsync(words, probability.always() ? 0xff : 0, count * sizeof(uint32_t), stream),
               "cudaMemsetAsync");
    return;
  }
  constexpr int64_t kBlockWords = kThreads * kWordsAThread;
  launch((count + kBlockWords - 1) / kBlockWords, stream, words, count,
         static_cast<uint32_t>(probability.kept()), seed, stream_of_seed);
}

}  // namespace adtrain::kernels
