#include <string>

#include <gtest/gtest.h>

#include "model/PreNormChecks.h"

namespace adtrain {
namespace {

TEST(EmulatedRmsNorm, IsTheReferenceInAnyOrderOfThreads) {
  at::manual_seed(1);
  for (const testing::RmsNormCase& tried : std::vector<testing::RmsNormCase>{{5, 33, 32, 1, 33, 0.1},
                                                                             {3, 40, 64, 2, 7, 0.1},
                                                                             {1, 1, 64, 2, 1, 0.0},
                                                                             {2, 9, 200, 1, 4, 0.25},
                                                                             {3, 2, 1032, 3, 1, 0.0}}) {
    SCOPED_TRACE("width " + std::to_string(tried.width));
    testing::expect_rms_norm_is_the_reference(tried, at::kCPU);
  }
}

}  // namespace
}  // namespace adtrain
