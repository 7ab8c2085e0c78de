#include "checkpoint/TensorStatistics.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

TEST(TensorStatistics, OfFiniteValuesBesideOthers) {
  const double infinity = std::numeric_limits<double>::infinity();
  const TensorStatistics found =
      TensorStatistics::of(at::tensor({1.0, infinity, 3.0, std::nan(""), 5.0}).to(at::kFloat));
  EXPECT_EQ(found.values, 5);
  EXPECT_EQ(found.not_finite, 2);
  EXPECT_DOUBLE_EQ(found.minimum, 1);
  EXPECT_DOUBLE_EQ(found.maximum, 5);
  EXPECT_DOUBLE_EQ(found.mean, 3);
  EXPECT_NEAR(found.deviation, std::sqrt(8.0 / 3), 1e-12);
}

TEST(TensorStatistics, OfNoValuesAndOfWholeNumbers) {
  EXPECT_EQ(TensorStatistics::of(at::empty({0, 3})).values, 0);
  EXPECT_EQ(TensorStatistics::of(at::full({2}, std::nan(""))).not_finite, 2);
  EXPECT_DOUBLE_EQ(TensorStatistics::of(at::arange(5)).mean, 2);
  EXPECT_DOUBLE_EQ(TensorStatistics::of(at::ones({2}, at::kBool)).mean, 1);
}

/// The sum of the second is infinite, and none of its values.
TEST(TensorStatistics, OneValueThatIsNotFiniteIsFound) {
  const std::vector<NamedTensor> finite = {{"a", at::ones({3})}, {"b", at::full({4}, 3e38F)}};
  EXPECT_NO_THROW(expect_finite(finite, ""));
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<NamedTensor> tensors = finite;
    tensors.push_back({"c", at::full({1}, value)});
    EXPECT_THROW(expect_finite(tensors, ""), CheckpointError);
  }
}

}  // namespace
}  // namespace adtrain
