#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/ChosenPiecesChecks.h"
#include "kernels/Gpt2BlockChecks.h"
#include "kernels/PreNormBlockChecks.h"

namespace adtrain {
namespace {

TEST(FusedPreNormBlock, IsTheReferenceWithTheBitsThatItDraws) {
  for (const auto& [attention_rate, hidden_rate] :
       std::vector<std::pair<double, double>>{{0.1, 0.2}, {0.2, 0.0}, {0.0, 0.2}}) {
    SCOPED_TRACE(fmt::format("rates {} and {}", attention_rate, hidden_rate));
    testing::PreNormBlockCheck({{3, 21, 26, 64, 4, true, 21}, attention_rate, hidden_rate, 256}, at::kCPU)
        .run();
  }
}

TEST(PreNormBlockByHalves, IsOneFunctionOfAutogradWithOurOwnAttention) {
  testing::PreNormBlockCheck({{3, 21, 21, 128, 4, true}, 0.1, 0.2, 512, true}, at::kCPU)
      .expect_one_function();
  testing::PreNormBlockCheck({{3, 21, 1, 128, 4, true}, 0.1, 0.2, 512, true}, at::kCPU).expect_one_function();
}

class PreNormSublayers : public ::testing::TestWithParam<testing::BlockCase> {};

TEST_P(PreNormSublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  testing::PreNormBlockCheck(GetParam(), at::kCPU).run();
}

INSTANTIATE_TEST_SUITE_P(Shapes, PreNormSublayers,
                         ::testing::ValuesIn(testing::pre_norm_cases_by_sublayers()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(PreNormBlockByHalves, RecomputesToTheSameBits) {
  for (const testing::BlockCase& tried : testing::pre_norm_cases_by_sublayers()) {
    if (tried.hidden_rate == 0 || tried.shape.width > 128) continue;
    SCOPED_TRACE(testing::name_of(tried));
    testing::PreNormBlockCheck(tried, at::kCPU).expect_the_same_recomputed();
  }
}

class Gpt2Sublayers : public ::testing::TestWithParam<testing::BlockCase> {};

TEST_P(Gpt2Sublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  testing::Gpt2BlockCheck(GetParam(), at::kCPU).run();
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gpt2Sublayers, ::testing::ValuesIn(testing::gpt2_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

TEST(Gpt2Block, RecomputesToTheSameBits) {
  for (const testing::BlockCase& tried : testing::gpt2_cases()) {
    if (tried.hidden_rate == 0) continue;
    SCOPED_TRACE(testing::name_of(tried));
    testing::Gpt2BlockCheck(tried, at::kCPU).expect_the_same_recomputed();
  }
}

class ChosenPiecesBySublayers : public ::testing::TestWithParam<testing::ChosenPiecesCase> {};

TEST_P(ChosenPiecesBySublayers, AreTheReferenceWithTheBitsThatTheyDraw) {
  testing::ChosenPiecesCheck(GetParam(), at::kCPU).run();
}

INSTANTIATE_TEST_SUITE_P(Pieces, ChosenPiecesBySublayers, ::testing::ValuesIn(testing::chosen_pieces_cases()),
                         [](const auto& tried) { return tried.param.name(); });

TEST(ChosenPieces, RecomputeToTheSameBits) {
  for (const testing::ChosenPiecesCase& tried : testing::chosen_pieces_cases()) {
    if (tried.hidden_rate == 0) continue;
    SCOPED_TRACE(tried.name());
    testing::ChosenPiecesCheck(tried, at::kCPU).expect_the_same_recomputed();
  }
}

}  // namespace
}  // namespace adtrain
