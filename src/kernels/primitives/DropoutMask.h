#pragma once

#include <cstdint>

#include <driver_types.h>

namespace adtrain::kernels {

/// The probability that dropout keeps an element: a whole number of 1024ths, so that few random words make a
/// word of independent bits. Rates of 1/2048 and less keep everything.
class KeepProbability {
 public:
  explicit KeepProbability(double dropout_rate);

  bool always() const { return kept_ == kSteps; }
  double value() const { return kept_ / double{kSteps}; }
  /// What is kept is multiplied with this, so that the mean stays.
  float scale() const { return kept_ == 0 ? 0.0f : static_cast<float>(1.0 / value()); }
  /// In kSteps-ths.
  int kept() const { return kept_; }

  static constexpr int kDigits = 10;
  static constexpr int kSteps = 1 << kDigits;

 private:
  int kept_;
};

/// Where a call's bits come from: they are a function of (*seed, number) and of what is asked for. `seed` is
/// in the GPU's memory, where a captured step finds another one each time.
struct MaskSource {
  KeepProbability probability;
  const int64_t* seed;
  uint64_t number;  ///< of the draw
};

/// Fills `count` words in the GPU's memory with independent bits, each set with the source's probability.
/// Returns at once; throws EnvironmentError where the kernel cannot be launched.
void fill_dropout_mask(uint32_t* words, int64_t count, const MaskSource& source, cudaStream_t stream);

/// The words of an attention's weights, a bit a key: (heads, ⌈tokens / 32⌉, rows). Rows are the last ones of
/// `tokens` and, after them, `queries`, which stand in the places of the last tokens.
struct AttentionRows {
  int64_t heads;  ///< of all sequences
  int tokens, queries, rows;
  bool causal;  ///< else each row reads all keys

  constexpr int row_words() const { return (tokens + 31) / 32; }
  constexpr int64_t words() const { return heads * row_words() * rows; }
  /// Of a row's words the first ones, those of keys up to its own place, are read.
  constexpr int words_read(int row) const {
    if (!causal) return row_words();
    const int token = tokens + queries - rows + row;
    return (token < tokens ? token : token - queries) / 32 + 1;
  }
};

/// The same for the words that are read; the others stay as they are.
void fill_attention_dropout_mask(uint32_t* words, const AttentionRows& rows, const MaskSource& source,
                                 cudaStream_t stream);

}  // namespace adtrain::kernels
