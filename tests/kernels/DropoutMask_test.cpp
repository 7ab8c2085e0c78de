#include "kernels/primitives/DropoutMask.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/FusedBlockChecks.h"
#include "kernels/FusedDevice.h"

namespace adtrain {
namespace {

class DropoutMasks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::fused_device()) GTEST_SKIP() << "no GPU here";
    seed_ = at::randint(1 << 30, {1}, integers());
  }

  static at::Device device() { return testing::fused_device()->device; }
  static at::TensorOptions integers() { return at::device(device()).dtype(at::kLong); }
  /// Of sequences that are numbered from 0.
  static at::Tensor first(int64_t count) { return at::arange(count, integers()); }
  kernels::MaskSource source(double rate, uint64_t place, const at::Tensor& sequences) const {
    return {kernels::KeepProbability(rate), seed_.const_data_ptr<int64_t>(), place,
            sequences.const_data_ptr<int64_t>(), sequences.size(0)};
  }
  static uint32_t* words_of(const at::Tensor& words) { return static_cast<uint32_t*>(words.data_ptr()); }
  static at::Tensor words_of_ones(at::IntArrayRef sizes) {
    return at::full(sizes, -1, at::device(device()).dtype(at::kInt));
  }
  /// Of each matrix (sequences, words).
  std::vector<at::Tensor> words(const kernels::MaskMatrices& matrices, const at::Tensor& sequences,
                                double rate, uint64_t place) const {
    const at::Tensor drawn = words_of_ones({sequences.size(0) * matrices.words_of_sequence()});
    kernels::fill_dropout_mask(words_of(drawn), matrices, source(rate, place, sequences),
                               testing::stream_of(device()));
    std::vector<at::Tensor> all;
    for (int64_t matrix = 0, first = 0; matrix < matrices.count; ++matrix) {
      const int64_t count = sequences.size(0) * matrices.words[matrix];
      all.push_back(drawn.narrow(0, first, count).view({sequences.size(0), -1}));
      first += count;
    }
    return all;
  }
  at::Tensor attention_words(const kernels::AttentionRows& rows, const at::Tensor& sequences,
                             double rate) const {
    at::Tensor drawn = words_of_ones({rows.heads, rows.row_words(), rows.rows});
    kernels::fill_attention_dropout_mask(words_of(drawn), rows, source(rate, 5, sequences),
                                         testing::stream_of(device()));
    return drawn;
  }

  at::Tensor seed_;
};

at::Tensor as_numbers(const at::Tensor& words) {
  return testing::bits_of(words).to(at::kFloat);
}

TEST(KeepProbability, HasAsFewDigitsAsBringTheRateWithinTwoPercent) {
  const auto dropped = [](double rate) {
    return kernels::KeepProbability::kSteps - kernels::KeepProbability(rate).kept();
  };
  EXPECT_EQ(dropped(0.5), 1024 / 2);
  EXPECT_EQ(dropped(0.25), 1024 / 4);
  EXPECT_EQ(dropped(0.2), 1024 * 13 / 64);
  EXPECT_EQ(dropped(0.1), 1024 * 13 / 128);
  EXPECT_EQ(dropped(0.9), 1024 * 115 / 128);
  EXPECT_EQ(dropped(0.05), 1024 * 13 / 256);
  EXPECT_EQ(dropped(0.01), 10);
  EXPECT_EQ(dropped(1.0 / 2049), 0);
  EXPECT_EQ(dropped(0.0), 0);
  EXPECT_EQ(dropped(1.0), 1024);
  for (int percent = 4; percent <= 96; ++percent) {
    const double rate = percent / 100.0;
    EXPECT_NEAR(dropped(rate) / 1024.0, rate, 0.02 * std::min(rate, 1 - rate)) << rate;
  }
}

/// Also those of few words each, of which most are the first of their random streams.
TEST_F(DropoutMasks, AreIndependentBitsOfTheAskedProbability) {
  const int64_t all = device().is_cuda() ? 1 << 20 : 1 << 14;
  SCOPED_TRACE(seed_.item<int64_t>());
  std::vector<double> rates = {0.1, 0.25, 0.5, 0.9};
  if (device().is_cuda()) rates.insert(rates.end(), {0.0, 1.0});  // without a kernel
  for (const int64_t of_sequence : {1024, 2}) {
    const int64_t count = of_sequence == 2 ? all / 2 : all;
    const at::Tensor sequences = first(count / of_sequence);
    const auto drawn = [&](double rate, uint64_t place) {
      return as_numbers(words({1, {of_sequence}}, sequences, rate, place)[0].flatten());  // (count, 32)
    };
    for (const double rate : rates) {
      const double p = kernels::KeepProbability(rate).value(), deviation = std::sqrt(p * (1 - p));
      EXPECT_NEAR(p, 1 - rate, 0.02 * std::min(rate, 1 - rate));
      const at::Tensor bits = drawn(rate, 3);
      EXPECT_TRUE(at::equal(bits, drawn(rate, 3)));
      const double sigma = deviation / std::sqrt(32.0 * static_cast<double>(count));
      EXPECT_NEAR(bits.mean(at::kDouble).item<double>(), p, 5 * sigma) << rate;
      // Each place of a word for itself, and pairs: neighbours in a word, in words of one stream and of
      // neighbouring streams, of two places.
      EXPECT_LE((bits.mean({0}, false, at::kDouble) - p).abs().max().item<double>(),
                6 * deviation / std::sqrt(count));
      const at::Tensor centred = bits - p;
      const auto correlated = [&](const at::Tensor& a, const at::Tensor& b) {
        return std::abs((a * b).mean(at::kDouble).item<double>());
      };
      const double bound =
          5 * deviation * deviation / std::sqrt(31.0 * static_cast<double>(count - 1024)) + 1e-9;
      EXPECT_LT(correlated(centred.narrow(1, 0, 31), centred.narrow(1, 1, 31)), bound) << rate;
      for (const int64_t apart : {1, 64, 128, 1024}) {
        EXPECT_LT(correlated(centred.narrow(0, 0, count - apart), centred.narrow(0, apart, count - apart)),
                  bound)
            << rate << ", " << apart << " apart";
      }
      EXPECT_LT(correlated(centred, drawn(rate, 4) - p), bound) << rate;
    }
  }
}

/// However a global batch is divided, and in whatever order its sequences lie.
TEST_F(DropoutMasks, OfASequenceFollowItsNumberAlone) {
  SCOPED_TRACE(seed_.item<int64_t>());
  const at::Tensor whole = first(13), parts[] = {whole.narrow(0, 0, 5), whole.narrow(0, 5, 8),
                                                 at::tensor({12, 0, 7, 3}, integers())};
  for (const kernels::MaskMatrices& matrices :
       {kernels::MaskMatrices{1, {1}}, kernels::MaskMatrices{3, {2, 8, 2}}, kernels::MaskMatrices{2, {9, 37}},
        kernels::MaskMatrices{3, {160, 640, 160}}}) {
    const std::vector<at::Tensor> of_all = words(matrices, whole, 0.3, 2);
    for (const at::Tensor& part : parts) {
      const std::vector<at::Tensor> found = words(matrices, part, 0.3, 2);
      for (size_t matrix = 0; matrix < of_all.size(); ++matrix)
        EXPECT_TRUE(at::equal(found[matrix], of_all[matrix].index_select(0, part))) << matrix;
    }
    EXPECT_FALSE(at::equal(words(matrices, whole, 0.3, 1)[0], of_all[0])) << "of another place";
    EXPECT_FALSE(at::equal(words(matrices, whole + 1, 0.3, 2)[0], of_all[0])) << "of other sequences";
  }
  for (const kernels::AttentionRows& of_one :
       {kernels::AttentionRows{2, 100, 0, 100, true}, kernels::AttentionRows{3, 33, 0, 1, true},
        kernels::AttentionRows{1, 70, 40, 110, true}, kernels::AttentionRows{2, 300, 0, 37, true},
        kernels::AttentionRows{4, 65, 0, 20, false}}) {
    const auto drawn = [&](const at::Tensor& sequences) {
      kernels::AttentionRows rows = of_one;
      rows.heads *= sequences.size(0);
      return attention_words(rows, sequences, 0.3).view({sequences.size(0), -1});
    };
    const at::Tensor of_all = drawn(whole);
    for (const at::Tensor& part : parts) EXPECT_TRUE(at::equal(drawn(part), of_all.index_select(0, part)));
    EXPECT_FALSE(at::equal(drawn(whole + 1), of_all));
  }
}

TEST_F(DropoutMasks, OfTheAttentionAreThereWhereTheyAreRead) {
  constexpr double kRate = 0.25, kKept = 1 - kRate;
  for (const kernels::AttentionRows& rows :
       {kernels::AttentionRows{6, 100, 0, 100, true}, kernels::AttentionRows{700, 33, 0, 1, true},
        kernels::AttentionRows{5, 70, 40, 110, true}, kernels::AttentionRows{3, 300, 300, 320, true},
        kernels::AttentionRows{4, 65, 0, 20, false}}) {
    const at::Tensor sequences = first(rows.heads % 2 == 0 ? rows.heads / 2 : rows.heads);
    const at::Tensor drawn = attention_words(rows, sequences, kRate);
    EXPECT_TRUE(at::equal(drawn, attention_words(rows, sequences, kRate)));
    const at::Tensor token =
        at::arange(rows.tokens + rows.queries - rows.rows, rows.tokens + rows.queries, integers());
    const at::Tensor place = at::where(token.lt(rows.tokens), token, token - rows.queries);
    const at::Tensor first_key = 32 * at::arange(rows.row_words(), integers());
    at::Tensor attention_output = first_key.unsqueeze(1).le(place.unsqueeze(0));  // (words, rows)
    if (!rows.causal) attention_output = at::ones_like(attention_output);
    const at::Tensor of_all_heads = attention_output.unsqueeze(0).expand_as(drawn);
    EXPECT_TRUE(drawn.masked_select(of_all_heads.logical_not()).eq(-1).all().item<bool>())
        << "stay as they are";
    const at::Tensor bits = as_numbers(drawn.masked_select(of_all_heads));
    const double sigma = std::sqrt(kKept * kRate / static_cast<double>(bits.numel()));
    EXPECT_NEAR(bits.mean(at::kDouble).item<double>(), kKept, 5 * sigma) << rows.tokens;
    // No head has another's words, no row those of its neighbour.
    const auto shared = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& read) {
      return a.eq(b).masked_select(read).to(at::kDouble).mean().item<double>();
    };
    EXPECT_LT(shared(drawn.select(0, 0), drawn.select(0, 1), attention_output), 0.1);
    if (rows.rows == 1) continue;
    const auto but_one = [&](const at::Tensor& x, int64_t from) { return x.narrow(-1, from, rows.rows - 1); };
    EXPECT_LT(shared(but_one(drawn, 0), but_one(drawn, 1), but_one(of_all_heads, 0)), 0.1);
  }
}

/// What one launch fills for a block is what two would, wherever it begins.
TEST_F(DropoutMasks, OfABlockAreThoseOfItsParts) {
  for (const double rate_of_attention : {0.3, 0.5}) {
    for (const bool beside_kernel_ahead : {false, true}) {
      const at::Tensor sequences = first(13);
      const kernels::AttentionRows rows = {4 * 13, 100, 40, 140, true};
      const kernels::MaskMatrices matrices = {3, {280, 1120, 280}};
      const at::Tensor attention = words_of_ones({rows.heads, rows.row_words(), rows.rows}),
                       hidden = words_of_ones({13 * matrices.words_of_sequence()});
      kernels::fill_block_dropout_masks(words_of(attention), rows, source(rate_of_attention, 5, sequences),
                                        words_of(hidden), matrices, source(0.3, 6, sequences),
                                        beside_kernel_ahead, testing::stream_of(device()));
      EXPECT_TRUE(at::equal(attention, attention_words(rows, sequences, rate_of_attention)));
      std::vector<at::Tensor> parts = words(matrices, sequences, 0.3, 6);
      for (at::Tensor& part : parts) part = part.flatten();
      EXPECT_TRUE(at::equal(hidden, at::cat(parts)));
    }
  }
}

}  // namespace
}  // namespace adtrain
