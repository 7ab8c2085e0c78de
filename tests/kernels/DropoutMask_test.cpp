#include "kernels/primitives/DropoutMask.h"

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
    seed_ = at::randint(1 << 30, {1}, at::device(device()).dtype(at::kLong));
  }

  static at::Device device() { return testing::fused_device()->device; }
  kernels::MaskSource source(double rate, uint64_t number) const {
    return {kernels::KeepProbability(rate), seed_.const_data_ptr<int64_t>(), number};
  }
  static uint32_t* words_of(const at::Tensor& words) { return static_cast<uint32_t*>(words.data_ptr()); }
  static at::Tensor words_of_ones(at::IntArrayRef sizes) {
    return at::full(sizes, -1, at::device(device()).dtype(at::kInt));
  }
  at::Tensor words(int64_t count, double rate, uint64_t number) const {
    at::Tensor drawn = words_of_ones({count});
    kernels::fill_dropout_mask(words_of(drawn), count, source(rate, number), testing::stream_of(device()));
    return drawn;
  }
  at::Tensor attention_words(const kernels::AttentionRows& rows, double rate) const {
    at::Tensor drawn = words_of_ones({rows.heads, rows.row_words(), rows.rows});
    kernels::fill_attention_dropout_mask(words_of(drawn), rows, source(rate, 5),
                                         testing::stream_of(device()));
    return drawn;
  }

  at::Tensor seed_;
};

at::Tensor as_numbers(const at::Tensor& words) {
  return testing::bits_of(words).to(at::kFloat);
}

TEST_F(DropoutMasks, AreIndependentBitsOfTheAskedProbability) {
  const int64_t count = device().is_cuda() ? 1 << 20 : 1 << 14;
  SCOPED_TRACE(seed_.item<int64_t>());
  std::vector<double> rates = {0.1, 0.25, 0.5, 0.9};
  if (device().is_cuda()) rates.insert(rates.end(), {0.0, 1.0});  // without a kernel
  for (const double rate : rates) {
    const double p = kernels::KeepProbability(rate).value(), deviation = std::sqrt(p * (1 - p));
    EXPECT_NEAR(p, 1 - rate, 0.5 / 1024);
    const at::Tensor bits = as_numbers(words(count, rate, 3));  // (count, 32)
    EXPECT_TRUE(at::equal(bits, as_numbers(words(count, rate, 3))));
    const double sigma = deviation / std::sqrt(32.0 * static_cast<double>(count));
    EXPECT_NEAR(bits.mean(at::kDouble).item<double>(), p, 5 * sigma) << rate;
    // Each place of a word for itself, and pairs: neighbours in a word, in neighbouring words, of two draws.
    EXPECT_LE((bits.mean({0}, false, at::kDouble) - p).abs().max().item<double>(),
              6 * deviation / std::sqrt(count));
    const at::Tensor centred = bits - p;
    const auto correlated = [&](const at::Tensor& a, const at::Tensor& b) {
      return std::abs((a * b).mean(at::kDouble).item<double>());
    };
    const double bound = 5 * deviation * deviation / std::sqrt(31.0 * static_cast<double>(count - 64)) + 1e-9;
    EXPECT_LT(correlated(centred.narrow(1, 0, 31), centred.narrow(1, 1, 31)), bound) << rate;
    for (const int64_t apart : {1, 64}) {
      EXPECT_LT(correlated(centred.narrow(0, 0, count - apart), centred.narrow(0, apart, count - apart)),
                bound);
    }
    EXPECT_LT(correlated(centred, as_numbers(words(count, rate, 4)) - p), bound) << rate;
  }
}

TEST_F(DropoutMasks, OfTheAttentionAreThereWhereTheyAreRead) {
  constexpr double kRate = 0.25, kKept = 1 - kRate;
  for (const kernels::AttentionRows& rows :
       {kernels::AttentionRows{6, 100, 0, 100, true}, kernels::AttentionRows{700, 33, 0, 1, true},
        kernels::AttentionRows{5, 70, 40, 110, true}, kernels::AttentionRows{3, 300, 300, 320, true},
        kernels::AttentionRows{4, 65, 0, 20, false}}) {
    const at::Tensor drawn = attention_words(rows, kRate);
    EXPECT_TRUE(at::equal(drawn, attention_words(rows, kRate)));
    const auto integers = at::device(device()).dtype(at::kLong);
    const at::Tensor token =
        at::arange(rows.tokens + rows.queries - rows.rows, rows.tokens + rows.queries, integers);
    const at::Tensor place = at::where(token.lt(rows.tokens), token, token - rows.queries);
    const at::Tensor first_key = 32 * at::arange(rows.row_words(), integers);
    at::Tensor attention_output = first_key.unsqueeze(1).le(place.unsqueeze(0));  // (words, rows)
    if (!rows.causal) attention_output = at::ones_like(attention_output);
    const at::Tensor of_all_heads = attention_output.unsqueeze(0).expand_as(drawn);
    EXPECT_TRUE(drawn.masked_select(of_all_heads.logical_not()).eq(-1).all().item<bool>())
        << "stay as they are";
    const at::Tensor bits = as_numbers(drawn.masked_select(of_all_heads));
    const double sigma = std::sqrt(kKept * kRate / static_cast<double>(bits.numel()));
    EXPECT_NEAR(bits.mean(at::kDouble).item<double>(), kKept, 5 * sigma) << rows.tokens;
    // No head has another's words.
    EXPECT_LT(drawn.select(0, 0)
                  .eq(drawn.select(0, 1))
                  .masked_select(attention_output)
                  .to(at::kDouble)
                  .mean()
                  .item<double>(),
              0.1);
  }
}

}  // namespace
}  // namespace adtrain
