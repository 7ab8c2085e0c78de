#include "collection/Lanes.h"

#include <cmath>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(Lanes, TanhIsAsGoodAsFloatsAre) {
  for (double x = -20; x < 20; x += 0.0037) {
    const Lanes inputs = Lanes{} + static_cast<float>(x);
    EXPECT_NEAR(tanh(inputs)[3], std::tanh(static_cast<double>(inputs[3])), 2e-7) << x;
  }
  for (const float huge : {-1e30F, -200.0F, 0.0F, 200.0F, 1e30F}) {
    EXPECT_EQ(tanh(Lanes{} + huge)[0], std::tanh(huge)) << huge;
  }
}

TEST(Lanes, TransposeSwapsRowsAndColumns) {
  Lanes rows[kLanes];
  for (int row = 0; row < kLanes; ++row) {
    for (int column = 0; column < kLanes; ++column) rows[row][column] = static_cast<float>(10 * row + column);
  }
  transpose(rows);
  for (int row = 0; row < kLanes; ++row) {
    for (int column = 0; column < kLanes; ++column)
      EXPECT_EQ(rows[row][column], static_cast<float>(10 * column + row));
  }
}

TEST(Lanes, SumAddsAllEight) {
  EXPECT_EQ(sum(Lanes{1, 2, 4, 8, 16, 32, 64, 128}), 255);
}

}  // namespace
}  // namespace adtrain
