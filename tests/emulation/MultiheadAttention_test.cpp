#include <vector>

#include <gtest/gtest.h>

#include "kernels/MultiheadAttentionChecks.h"
#include "kernels/StreamedAttentionChecks.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using testing::Lying;
using testing::MultiheadAttentionCase;

/// Keys that pass by. Queries and keys that are four times as long leave scores in range, those that are
/// twelve times as long do not. Of those a row has a gradient where two of its keys weigh something, which
/// few rows have: there must be many.
std::vector<MultiheadAttentionCase> streaming_cases() {
  return {{{{1, 130, 130, 128, 2, true}, 0.1}},
          {{{1, 200, 200, 128, 2, true}, 0.0}},
          {{{2, 64, 64, 64, 1, true}, 0.1}, Lying::kApart},
          {{{1, 97, 97, 128, 2, true}, 0.1, 4.0}},
          {{{2, 150, 150, 128, 2, true}, 0.1, 12.0}},
          {{{1, 128, 128, 64, 1, true}, 0.1}},
          {{{1, 1, 1, 64, 1, true}, 0.0}},
          {{{2, 200, 1, 128, 2, true}, 0.1}},
          {{{1, 190, 33, 64, 1, true}, 0.1}, Lying::kApart},
          {{{1, 270, 100, 64, 1, true}, 0.0}},
          {{{1, 270, 270, 32, 1, true}, 0.1}},
          {{{2, 70, 140, 128, 2, true, 70}, 0.1}},
          {{{1, 65, 130, 64, 1, true, 65}, 0.1}},  // of the pass without the last key 64
          {{{2, 66, 66, 64, 1, true, 66}, 0.0}, Lying::kApart},
          {{{1, 100, 150, 64, 1, true, 90}, 0.1}},
          {{{1, 100, 30, 64, 1, true, 60}, 0.1}},
          {{{1, 100, 120, 64, 1, true, 60}, 0.1}, Lying::kApart},
          {{{2, 20, 1, 128, 2, true, 20}, 0.1}},
          {{{2, 1, 2, 64, 1, true, 1}, 0.0}},
          {{{1, 70, 140, 64, 1, true, 70}, 0.1}, Lying::kByThirds, at::kHalf, 1, 100},
          {{{1, 260, 520, 64, 2, true, 260}, 0.1}},
          {{{1, 90, 180, 64, 1, true, 90}, 0.0, 4.0}},
          {{{2, 90, 180, 128, 2, true, 90}, 0.1, 12.0}},
          {{{1, 400, 400, 256, 8, true}, 0.0, 1.0, false, true}},
          {{{1, 330, 330, 64, 1, true}, 0.1, 1.0, false, true}},
          {{{1, 420, 150, 64, 2, true}, 0.1, 1.0, false, true}},
          {{{1, 330, 330, 128, 2, true}, 0.0, 4.0, false, true}},
          {{{1, 390, 390, 64, 1, true}, 0.1, 12.0, false, true}},
          {{{3, 270, 270, 64, 1, true}, 0.1, 1.0, false, false, /*packed=*/true}},
          {{{2, 330, 330, 64, 2, true}, 0.0, 1.0, false, true, /*packed=*/true}},
          {{{2, 200, 90, 128, 2, true}, 0.0, 1.0, false, false, /*packed=*/true}},
          {{{2, 140, 140, 128, 2, true}, 0.1, 1.0, false, true, /*packed=*/true}},
          {{{2, 150, 150, 128, 2, true}, 0.0, 12.0, false, false, /*packed=*/true}},
          {{{2, 270, 270, 32, 2, true}, 0.1}},
          {{{1, 260, 520, 32, 2, true, 260}, 0.1}},
          {{{1, 300, 20, 32, 2, true}, 0.0}, Lying::kApart},
          {{{1, 290, 290, 32, 2, true}, 0.0, 12.0, false, true}},
          {{{2, 270, 270, 32, 2, true}, 0.1, 1.0, false, false, /*packed=*/true}},
          {{{3, 264, 395, 32, 2, true, 131}, 0.1, 1.0, /*padded=*/true}},
          {{{5, 140, 140, 128, 2, true}, 0.1, 1.0, /*padded=*/true}},
          {{{4, 270, 270, 64, 2, true}, 0.0, 1.0, /*padded=*/true}},
          {{{4, 150, 1, 64, 1, true}, 0.1, 1.0, /*padded=*/true}, Lying::kApart},
          {{{4, 150, 90, 64, 1, true}, 0.0, 12.0, /*padded=*/true}},
          {{{5, 132, 197, 64, 1, true, 65}, 0.1, 1.0, /*padded=*/true}},
          {{{5, 132, 65, 64, 1, true, 65}, 0.0, 1.0, /*padded=*/true}, Lying::kApart},
          {{{4, 129, 193, 64, 1, true, 64}, 0.0, 4.0, /*padded=*/true}},
          {{{4, 20, 5, 64, 1, true, 9}, 0.1, 1.0, /*padded=*/true}}};
}

/// Small ones, that between them go every way through the kernels.
std::vector<MultiheadAttentionCase> emulated_cases() {
  std::vector<MultiheadAttentionCase> all = testing::multihead_attention_cases({
      {{3, 33, 33, 128, 8, true}, 0.1},
      {{2, 48, 20, 96, 3, false}, 0.0},
      {{2, 21, 21, 128, 16, true}, 0.1},
      {{2, 130, 130, 32, 2, true}, 0.1},
      {{3, 37, 1, 128, 4, true}, 0.1},
      {{2, 37, 1, 96, 12, false}, 0.1},
      {{1, 1, 1, 64, 4, true}, 0.0},
      {{1, 40, 40, 128, 8, true}, 0.1, 4.0},
      {{2, 33, 33, 96, 6, false}, 0.1},
      {{2, 101, 37, 64, 2, true}, 0.1},
      {{1, 50, 50, 256, 16, true}, 0.0},
      {{1, 18, 18, 256, 8, true}, 0.1},

      {{3, 33, 66, 128, 8, true, 33}, 0.1},
      {{2, 20, 20, 128, 4, true, 20}, 0.1},
      {{2, 41, 55, 96, 3, true, 41}, 0.0},
      {{3, 23, 5, 128, 16, true, 23}, 0.1},
      {{2, 23, 1, 96, 6, true, 23}, 0.1},
      {{2, 49, 98, 32, 4, true, 49}, 0.0},
      {{1, 1, 2, 64, 2, true, 1}, 0.0},
      {{1, 40, 80, 32, 1, true, 40}, 0.1, 4.0},
      {{2, 33, 35, 256, 32, true, 33}, 0.1},

      {{4, 50, 50, 128, 8, true}, 0.1, 1.0, true},
      {{4, 50, 1, 64, 4, true}, 0.1, 1.0, true},
      {{3, 70, 70, 128, 4, true}, 0.0, 1.0, true},
      {{4, 35, 22, 32, 4, true}, 0.1, 1.0, true},
      {{4, 33, 33, 64, 8, true}, 0.1, 4.0, true},
      {{4, 50, 68, 128, 8, true, 18}, 0.1, 1.0, true},
      {{4, 50, 18, 128, 4, true, 18}, 0.1, 1.0, true},
      {{4, 35, 40, 64, 8, true, 17}, 0.0, 1.0, true},
      {{3, 40, 1, 96, 3, true, 20}, 0.1, 1.0, true},
      {{3, 33, 40, 32, 2, true, 16}, 0.1, 4.0, true},
      {{2, 40, 50, 96, 6, true, 15}, 0.1},
      {{4, 49, 60, 64, 2, true, 20}, 0.1, 1.0, true},
  });
  for (const MultiheadAttentionCase& tried : streaming_cases()) all.push_back(tried);
  for (const MultiheadAttentionCase& tried : testing::in_fp16(streaming_cases())) all.push_back(tried);
  for (const MultiheadAttentionCase& tried : testing::in_fp16(testing::short_streaming_cases()))
    if (tried.lying != Lying::kWithRope) all.push_back(tried);
  return all;
}

class EmulatedMultiheadAttention : public ::testing::TestWithParam<MultiheadAttentionCase> {
 protected:
  void SetUp() override { at::manual_seed(fresh_seed()); }
};

TEST_P(EmulatedMultiheadAttention, IsTheReferenceInAnyOrderOfThreads) {
  testing::expect_head_attention_is_the_reference(GetParam(), at::kCPU);
}

TEST_P(EmulatedMultiheadAttention, OperationIsTheReferenceWithTheBitsThatItDraws) {
  if (!GetParam().block.shape.causal) GTEST_SKIP() << "networks have none that are not causal";
  if (GetParam().block.alibi || GetParam().block.packed) {
    testing::expect_streamed_attention_is_the_reference(GetParam(), at::kCPU);
  } else {
    testing::expect_projected_attention_is_the_reference(GetParam(), at::kCPU);
  }
}

TEST(EmulatedStreamedAttention, OfRotatedQueriesAndKeysIsTheReference) {
  for (const MultiheadAttentionCase& tried : testing::rotated_streaming_cases()) {
    SCOPED_TRACE(testing::name_of(tried));
    testing::expect_projected_attention_is_the_reference(tried, at::kCPU);
  }
}

/// Networks of chosen pieces have any number of tokens and no other kernels of ours.
TEST(EmulatedStreamedAttention, OfFewTokensIsTheReference) {
  for (const double dropout : {0.0, 0.1}) {
    for (const bool alibi : {true, false}) {
      testing::expect_streamed_attention_is_the_reference(
          {{{2, 9, 9, 64, 2, true}, dropout, 1.0, /*padded=*/false, alibi}}, at::kCPU);
      testing::expect_streamed_attention_is_the_reference(
          {{{2, 33, 33, 128, 2, true}, dropout, 1.0, /*padded=*/false, alibi}}, at::kCPU);
      testing::expect_streamed_attention_is_the_reference(
          {{{1, 130, 3, 96, 3, true}, dropout, 1.0, /*padded=*/false, alibi}}, at::kCPU);
    }
  }
}

TEST(EmulatedStreamedAttention, OfTwoStreamsIsTheReference) {
  testing::expect_streamed_attention_of_two_streams_is_the_reference(at::kCPU, /*long_ones=*/false);
}

TEST(EmulatedStreamedAttention, OverflowInFp16ComesOut) {
  testing::expect_overflow_comes_out(at::kCPU);
}

TEST(EmulatedStreamedAttention, NormsQueriesAndKeys) {
  for (const testing::NormsOfHeads norms : {testing::NormsOfHeads::kRms, testing::NormsOfHeads::kLayer}) {
    testing::expect_streamed_attention_is_the_reference(
        {{{2, 70, 70, 128, 2, true}, 0.0, 1.0, /*padded=*/false, /*alibi=*/true}}, at::kCPU, norms);
    testing::expect_streamed_attention_is_the_reference({{{2, 130, 20, 96, 3, true}, 0.1}}, at::kCPU, norms);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulatedMultiheadAttention, ::testing::ValuesIn(emulated_cases()),
                         [](const auto& tried) { return testing::name_of(tried.param); });

}  // namespace
}  // namespace adtrain
