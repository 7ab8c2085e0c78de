#include "data/SampleOrder.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

class SampleOrderOfSize : public testing::TestWithParam<int64_t> {};

TEST_P(SampleOrderOfSize, EachEpochVisitsEverySampleOnce) {
  const int64_t samples = GetParam();
  const SampleOrder order(samples, 5);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t sample = order.sample_at(epoch * samples + i);
      ASSERT_GE(sample, 0);
      ASSERT_LT(sample, samples);
      seen.insert(sample);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), samples) << "epoch " << epoch;
  }
}

INSTANTIATE_TEST_SUITE_P(SampleOrder, SampleOrderOfSize, testing::Values(1, 2, 3, 4, 5, 16, 17, 1000, 65537));

TEST(SampleOrder, SeedsAndEpochsShuffleDifferently) {
  const SampleOrder a(1000, 1), b(1000, 2);
  int same_seed = 0, same_epoch = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    same_seed += a.sample_at(i) == b.sample_at(i);
    same_epoch += a.sample_at(i) == a.sample_at(1000 + i);
  }
  EXPECT_LT(same_seed, 20);
  EXPECT_LT(same_epoch, 20);
}

TEST(SampleOrder, PositionsAreSpreadEvenly) {
  // Chi-square over 20 cells of the first tenth of a large epoch: 19 degrees of freedom, 43.8 at 0.1%.
  constexpr int64_t kSamples = 6723300, kDrawn = 200000, kCells = 20;
  const SampleOrder order(kSamples, 42);
  std::vector<double> counts(kCells);
  for (int64_t i = 0; i < kDrawn; ++i) ++counts[static_cast<size_t>(order.sample_at(i) * kCells / kSamples)];
  const double expected = static_cast<double>(kDrawn) / static_cast<double>(kCells);
  double chi_square = 0;
  for (const double count : counts) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 43.8);
}

TEST(SampleOrder, AnEmptyDataSetIsADataError) {
  EXPECT_THROW(SampleOrder(0, 1), DataError);
}

}  // namespace
}  // namespace adtrain
