// In all programs of tests that have libtorch: its generators begin each test with fresh_seed(), so that
// ADTRAIN_TEST_SEED repeats a test's input, alone as among others.

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "support/FreshSeed.h"

namespace adtrain {
namespace {

class SeedOfTorch final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& /*test*/) override { at::manual_seed(fresh_seed()); }
};

/// GoogleTest keeps listeners that come before main, too.
[[maybe_unused]] const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new SeedOfTorch);
  return true;
}();

}  // namespace
}  // namespace adtrain
