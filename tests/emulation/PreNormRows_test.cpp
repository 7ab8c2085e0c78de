#include <array>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/PreNormRowChecks.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

class EmulatedPreNormRows : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(fresh_seed()); }
  const testing::PreNormRowChecks checks{at::kCPU, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Types, EmulatedPreNormRows, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& type) { return std::string(c10::toString(type.param)); });

TEST_P(EmulatedPreNormRows, NormedInputIsTheReference) {
  for (const int64_t width : {8, 72, 128, 264, 512, 768, 1032}) {
    for (const double rate : {0.0, 0.1}) {
      checks.expect_normed_inputs(3, 19, width, 7, rate);
      checks.expect_normed_inputs(1, 1, width, 1, rate);
    }
  }
}

TEST_P(EmulatedPreNormRows, DroppedSumIsTheReference) {
  for (const auto& [rows, width] : std::vector<std::array<int64_t, 2>>{{1, 8}, {300, 40}, {37, 264}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
    checks.expect_dropped_sum(rows, width);
  }
}

TEST_P(EmulatedPreNormRows, GeluIsTheReference) {
  for (const auto& [rows, width] :
       std::vector<std::array<int64_t, 2>>{{1, 8}, {300, 40}, {37, 264}, {5, 2048}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
    for (const kernels::GeluKind kind : {kernels::GeluKind::kExact, kernels::GeluKind::kTanh})
      checks.expect_gelu(rows, width, kind);
  }
}

TEST_P(EmulatedPreNormRows, GateIsTheReference) {
  for (const auto& [rows, width] :
       std::vector<std::array<int64_t, 2>>{{1, 8}, {300, 40}, {37, 264}, {5, 3072}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
    checks.expect_gate(rows, width);
  }
}

TEST_P(EmulatedPreNormRows, RopeIsTheReference) {
  for (const auto& [length, queries, rows] :
       std::vector<std::array<int64_t, 3>>{{23, 0, 23}, {23, 0, 1}, {26, 13, 26}, {26, 13, 13}, {20, 6, 6}}) {
    for (const auto& [heads, head_size] :
         std::vector<std::array<int64_t, 2>>{{1, 16}, {5, 48}, {4, 32}, {12, 64}}) {
      SCOPED_TRACE(fmt::format("{} of {} tokens are queries, {} rows, {} heads of {}", queries, length, rows,
                               heads, head_size));
      checks.expect_rope(3, length, queries, rows, heads, head_size);
    }
  }
}

TEST_P(EmulatedPreNormRows, ColumnsAreAddedUp) {
  for (const auto& [rows, width] : std::vector<std::array<int64_t, 2>>{{1, 8}, {77, 264}, {300, 384}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
    checks.expect_added_columns(rows, width);
  }
}

}  // namespace
}  // namespace adtrain
