#pragma once

#include <vector>

#include <gtest/gtest.h>

#include "kernels/FusedBlockCase.h"
#include "support/FreshSeed.h"

namespace adtrain::testing {

/// Small ones, that between them go every way through the kernels: more sequences than thread blocks, warp
/// tiles that are not full, fewer rows than tokens, both widths, heads of 8, 16 and 32, one stream and two.
inline std::vector<FusedBlockCase> emulated_cases() {
  return {
      {{5, 33, 33, 64, 4, true}, 0.1},        {{3, 48, 20, 64, 2, false}, 0.0},
      {{7, 21, 21, 32, 4, false}, 0.1},       {{2, 130, 130, 32, 2, true}, 0.0},
      {{3, 37, 1, 64, 8, true}, 0.1},         {{5, 130, 1, 64, 4, true}, 0.1},
      {{6, 50, 1, 64, 2, false}, 0.0},        {{17, 70, 1, 32, 1, true}, 0.1},
      {{2, 256, 1, 32, 2, true}, 0.0},        {{3, 40, 1, 64, 4, true}, 0.1, 4.0},
      {{2, 18, 18, 32, 1, true}, 0.1},        {{1, 1, 1, 32, 4, true}, 0.0},
      {{2, 40, 40, 64, 4, true}, 0.0, 4.0},   {{2, 101, 5, 64, 4, true}, 0.1},
      {{2, 90, 90, 64, 8, true}, 0.1},

      {{3, 33, 66, 64, 4, true, 33}, 0.1},    {{5, 20, 20, 32, 4, true, 20}, 0.1},
      {{2, 41, 55, 64, 2, true, 41}, 0.0},    {{3, 23, 5, 64, 8, true, 23}, 0.1},
      {{1, 1, 2, 32, 2, true, 1}, 0.0},       {{2, 40, 80, 32, 1, true, 40}, 0.1, 4.0},
      {{2, 130, 150, 64, 2, true, 130}, 0.1}, {{2, 101, 106, 64, 4, true, 101}, 0.1},
  };
}

/// Likewise with padding in front, and with fewer queries than tokens: post-norm alone.
inline std::vector<FusedBlockCase> emulated_padded_cases() {
  return {
      {{7, 69, 69, 64, 4, true}, 0.1, 1.0, true},     {{4, 101, 101, 32, 4, true}, 0.0, 1.0, true},
      {{9, 37, 1, 64, 8, true}, 0.1, 1.0, true},      {{6, 50, 20, 32, 1, true}, 0.1, 1.0, true},
      {{5, 64, 64, 64, 2, true}, 0.1, 4.0, true},     {{2, 1, 1, 32, 2, true}, 0.1, 1.0, true},
      {{7, 101, 5, 64, 4, true}, 0.1, 1.0, true},

      {{5, 44, 65, 64, 4, true, 21}, 0.1, 1.0, true}, {{6, 70, 29, 32, 4, true, 29}, 0.1, 1.0, true},
      {{5, 50, 60, 64, 2, true, 16}, 0.0, 1.0, true}, {{5, 52, 7, 64, 8, true, 18}, 0.1, 1.0, true},
      {{4, 40, 57, 32, 1, true, 17}, 0.1, 4.0, true}, {{2, 150, 210, 32, 2, true, 60}, 0.1},
  };
}

class EmulatedKernel : public ::testing::TestWithParam<FusedBlockCase> {
 protected:
  void SetUp() override { at::manual_seed(fresh_seed()); }
};

}  // namespace adtrain::testing
