#include <array>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/ChosenPiecesChecks.h"
#include "kernels/Gpt2BlockChecks.h"
#include "kernels/PreNormBlockChecks.h"
#include "kernels/PreNormRowChecks.h"

namespace adtrain {
namespace {

/// What goes on between products; small ones run emulated, too.
class PreNormRowsOfSublayers : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
  static testing::PreNormRowChecks checks() { return {at::kCUDA, GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Types, PreNormRowsOfSublayers, ::testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& type) { return std::string(c10::toString(type.param)); });

TEST_P(PreNormRowsOfSublayers, NormedInputIsTheReference) {
  for (const int64_t width : {8, 64, 96, 264, 512, 768, 1000, 1032, 4096}) {
    for (const double rate : {0.0, 0.1}) {
      checks().expect_normed_inputs(5, 613, width, 7, rate);
      checks().expect_normed_inputs(1, 1, width, 1, rate);
    }
  }
}

TEST_P(PreNormRowsOfSublayers, GeluIsTheReference) {
  for (const int64_t width : {8, 264, 1000, 3072}) {
    for (const int64_t rows : {1, 21, 3065}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
      for (const kernels::GeluKind kind : {kernels::GeluKind::kExact, kernels::GeluKind::kTanh})
        checks().expect_gelu(rows, width, kind);
    }
  }
}

TEST_P(PreNormRowsOfSublayers, DroppedSumIsTheReference) {
  for (const int64_t width : {8, 264, 1000, 3072}) {
    for (const int64_t rows : {1, 21, 3065}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
      checks().expect_dropped_sum(rows, width);
    }
  }
}

TEST_P(PreNormRowsOfSublayers, GateIsTheReference) {
  for (const int64_t width : {8, 264, 1000, 3072}) {
    for (const int64_t rows : {1, 21, 3065}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
      checks().expect_gate(rows, width);
    }
  }
}

TEST_P(PreNormRowsOfSublayers, RopeIsTheReference) {
  for (const auto& [length, queries, rows] :
       std::vector<std::array<int64_t, 3>>{{240, 0, 240}, {240, 0, 1}, {480, 240, 480}, {480, 240, 240}}) {
    for (const auto& [heads, head_size] :
         std::vector<std::array<int64_t, 2>>{{1, 16}, {5, 48}, {4, 32}, {12, 64}}) {
      SCOPED_TRACE(fmt::format("{} of {} tokens are queries, {} rows, {} heads of {}", queries, length, rows,
                               heads, head_size));
      checks().expect_rope(9, length, queries, rows, heads, head_size);
    }
  }
}

TEST_P(PreNormRowsOfSublayers, ColumnsAreAddedUp) {
  for (const int64_t width : {8, 264, 2304}) {
    for (const int64_t rows : {1, 77, 30'011}) {
      SCOPED_TRACE(fmt::format("{} rows of {}", rows, width));
      checks().expect_added_columns(rows, width);
    }
  }
}

class PreNormSublayers : public ::testing::TestWithParam<testing::BlockCase> {};

TEST_P(PreNormSublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  testing::PreNormBlockCheck(GetParam(), at::kCUDA).run();
}

INSTANTIATE_TEST_SUITE_P(Shapes, PreNormSublayers,
                         ::testing::ValuesIn(testing::pre_norm_cases_by_sublayers()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

class Gpt2Sublayers : public ::testing::TestWithParam<testing::BlockCase> {};

TEST_P(Gpt2Sublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  testing::Gpt2BlockCheck(GetParam(), at::kCUDA).run();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gpt2Sublayers, ::testing::ValuesIn(testing::gpt2_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

/// So many tokens that GELU is in the products' epilogues.
INSTANTIATE_TEST_SUITE_P(
    ManyTokens, Gpt2Sublayers,
    ::testing::Values(testing::BlockCase{{16, 521, 521, 128, 4, true}, 0.1, 0.25, 512, true},
                      testing::BlockCase{{16, 521, 521, 128, 4, true}, 0.0, 0.0, 512, true, at::kHalf}),
    [](const auto& tried) { return testing::name_of(tried.param); });

class ChosenPiecesBySublayers : public ::testing::TestWithParam<testing::ChosenPiecesCase> {};

TEST_P(ChosenPiecesBySublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  testing::ChosenPiecesCheck(GetParam(), at::kCUDA).run();
}

INSTANTIATE_TEST_SUITE_P(Pieces, ChosenPiecesBySublayers, ::testing::ValuesIn(testing::chosen_pieces_cases()),
                         [](const auto& tried) { return tried.param.name(); });

}  // namespace
}  // namespace adtrain
