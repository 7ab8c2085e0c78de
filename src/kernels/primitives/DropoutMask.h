#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain::kernels {

/// The probability that dropout keeps an element. It has as few binary digits as bring the rate within 2%, or
/// the rate's complement where that is smaller, and 10 at most, so that few random words make a word of
/// independent bits: a rate of 0.1 is 13/128. (FlashAttention has 8 digits.) Rates of 1/2048 and less keep
/// everything.
class KeepProbability {
 public:
  /// `dropout_rate`: from 0 to 1.
  explicit KeepProbability(double dropout_rate);

  bool always() const { return kept_ == kSteps; }
  double value() const { return kept_ / double{kSteps}; }
  /// The factor of kept elements, which preserves the mean.
  float scale() const { return kept_ == 0 ? 0.0f : static_cast<float>(1.0 / value()); }
  /// The probability times kSteps.
  int kept() const { return kept_; }

  static constexpr int kDigits = 10;
  static constexpr int kSteps = 1 << kDigits;

 private:
  int kept_ = kSteps;
};

/// The source of a call's random bits, a mask for each of some sequences. That of a sequence is a function of
/// (*seed, place), of the sequence's number and of the shape of its mask. Pointers are to the GPU's memory,
/// because each replay of a captured step has a new seed.
struct MaskSource {
  KeepProbability probability;
  const int64_t* seed;
  uint64_t place;            ///< where the masks are used
  const int64_t* sequences;  ///< (sequence_count): the numbers of the sequences in the global batch
  int64_t sequence_count;
};

/// Masks of matrices that have rows of the same sequences.
struct MaskMatrices {
  static constexpr int kMost = 3;

  int count;
  int64_t words[kMost];  ///< of each sequence, in each matrix

  /// Of all matrices.
  constexpr int64_t words_of_sequence() const {
    int64_t sum = 0;
    for (int matrix = 0; matrix < count; ++matrix) sum += words[matrix];
    return sum;
  }
};

/// Fills words in the GPU's memory with independent bits, each set with the source's probability: of the
/// first matrix all sequences, (sequences, words), then those of the next. Returns at once; throws
/// EnvironmentError where the kernel cannot be launched.
void fill_dropout_mask(uint32_t* words, const MaskMatrices& matrices, const MaskSource& source,
                       cudaStream_t stream);

/// The dropout mask of attention weights, one bit per key: words (heads, ⌈tokens / 32⌉, rows). The rows are
/// the last `rows` of a sequence's `tokens` tokens and the `queries` queries after them. The queries take the
/// positions of the last tokens.
struct AttentionRows {
  int64_t heads;  ///< of all sequences, which have the same number each
  int tokens, queries, rows;
  bool causal;  ///< else each row reads all keys

  constexpr int row_words() const { return (tokens + 31) / 32; }
  constexpr int64_t words() const { return heads * row_words() * rows; }
  /// How many words of a row are read: those of the keys up to the row's own position.
  constexpr int words_read(int row) const {
    if (!causal) return row_words();
    const int token = tokens + queries - rows + row;
    return (token < tokens ? token : token - queries) / 32 + 1;
  }
};

/// The same for a mask of attention weights. Words that are never read stay unchanged.
void fill_attention_dropout_mask(uint32_t* words, const AttentionRows& rows, const MaskSource& source,
                                 cudaStream_t stream);

/// Both of the above, of the same sequences, in one launch where the probabilities are equal: the same words.
/// With `beside_kernel_ahead` that launch starts where the kernel ahead on the stream leaves multiprocessors
/// free, if that kernel lets it (let_next_kernel_start()). Then seed and sequences must be older than that
/// kernel, and it must not use the words' memory.
void fill_block_dropout_masks(uint32_t* attention_words, const AttentionRows& rows,
                              const MaskSource& of_attention, uint32_t* words, const MaskMatrices& matrices,
                              const MaskSource& of_matrices, bool beside_kernel_ahead, cudaStream_t stream);

}  // namespace adtrain::kernels
