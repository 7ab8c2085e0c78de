#include "kernels/mlp/StoredSlopes.cuh"

#include <cmath>

#include <gtest/gtest.h>

namespace adtrain::kernels {
namespace {

/// What comes back of the four slopes of each block, scaled as dropout scales them.
template <class Short>
void expect_kept(float scale) {
  SCOPED_TRACE(::testing::Message() << "scale " << scale);
  using Slopes = StoredSlopes<Short>;
  const float unit = Slopes::unit(scale);
  constexpr int kSteps = 100'000;
  constexpr float kLowest = -0.13F, kHighest = 1.13F;
  for (int step = 0; step <= kSteps; ++step) {
    const float slope = kLowest + (kHighest - kLowest) * static_cast<float>(step) / kSteps;
    const float given[2][2] = {{slope * scale, 0}, {scale, (1 - slope) * scale}};
    float found[2][2];
    typename Slopes::Part part;
    const int block = step % Slopes::kPartBlocks;
    Slopes::put(part, block, given, 1 / unit);
    Slopes::get(part, block, found, unit);
    const float rounding = Slopes::kCodes ? scale / 300 : scale * 0x1p-11F;
    ASSERT_NEAR(found[0][0], given[0][0], rounding) << slope;
    ASSERT_NEAR(found[1][1], given[1][1], rounding) << 1 - slope;
    ASSERT_EQ(found[0][1], 0) << "of what is dropped";
    ASSERT_NEAR(found[1][0], scale, scale * (Slopes::kCodes ? 1.1e-4F : 0x1p-11F)) << "far above 0";
  }
}

TEST(StoredSlopes, ComeBackTo8BitsAndZeroExactly) {
  for (const float scale : {1.0F, 1 / 0.9F, 1 / 0.7F, 2.0F, 10.0F}) expect_kept<__nv_bfloat16>(scale);
}

TEST(StoredSlopes, InFp16ComeBackToItsDigits) {
  for (const float scale : {1.0F, 1 / 0.9F, 2.0F}) expect_kept<__half>(scale);
}

}  // namespace
}  // namespace adtrain::kernels
