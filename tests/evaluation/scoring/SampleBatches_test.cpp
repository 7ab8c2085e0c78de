#include "evaluation/scoring/SampleBatches.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "evaluation/scoring/ScoringOptions.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(SampleBatches, EveryDivisionHasEachSampleOnce) {
  for (const int64_t windows : {1, 2, 7, 64, 101}) {
    for (const int64_t batch : {1, 2, 5, 64}) {
      const SampleBatches batches(windows, std::nullopt, batch);
      std::vector<int64_t> expected(static_cast<size_t>(windows));
      std::iota(expected.begin(), expected.end(), 0);
      for (const int64_t shards : {1, 2, 3, 4, 9, 200}) {
        std::vector<int64_t> found;
        int64_t end = 0;
        for (int64_t shard = 0; shard < shards; ++shard) {
          const NumberSpan of_shard = NumberSpan{0, batches.batches()}.part(shard, shards);
          EXPECT_EQ(batches.samples_in(of_shard).first, end);
          end = batches.samples_in(of_shard).end;
          for (int64_t rank = 0; rank < 3; ++rank) {
            const NumberSpan own = of_shard.part(rank, 3);
            for (int64_t i = own.first; i < own.end; ++i) {
              const std::vector<int64_t> numbers = batches.windows_of(i);
              found.insert(found.end(), numbers.begin(), numbers.end());
              EXPECT_LE(std::ssize(numbers), batches.rows());
            }
          }
        }
        EXPECT_EQ(found, expected) << windows << " windows by " << batch << " in " << shards << " shards";
        EXPECT_EQ(end, windows);
      }
    }
  }
}

TEST(SampleBatches, FewerSamplesAreSpreadEvenly) {
  const SampleBatches batches(100, 4, 3);
  EXPECT_EQ(batches.samples(), 4);
  EXPECT_EQ(batches.batches(), 2);
  EXPECT_THAT(batches.windows_of(0), ElementsAre(0, 25, 50));
  EXPECT_THAT(batches.windows_of(1), ElementsAre(75));
  EXPECT_EQ(SampleBatches(3, 10, 64).samples(), 3);
  EXPECT_EQ(SampleBatches(3, 10, 64).rows(), 3) << "no row is computed that no sample needs";
}

TEST(SampleBatches, AutomaticBatchesLeaveWorkForManyRanks) {
  EXPECT_EQ(automatic_score_batch(1, 80, false), 1);
  EXPECT_EQ(automatic_score_batch(7, 80, true), 1);
  EXPECT_EQ(automatic_score_batch(32 * 5, 80, false), 4);
  EXPECT_EQ(automatic_score_batch(1'000'000, 80, false), 16);
  EXPECT_EQ(automatic_score_batch(1'000'000, 1000, false), 4);
  EXPECT_EQ(automatic_score_batch(1'000'000, 100'000, false), 1);
  EXPECT_EQ(automatic_score_batch(1'000'000, 1000, true), 256);
}

std::string refusal(const std::string& shard) {
  try {
    ScoreShard::parse(shard);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ScoreShard, IsReadOrRefused) {
  EXPECT_EQ(ScoreShard::parse("0/1"), ScoreShard());
  EXPECT_EQ(ScoreShard::parse("3/4"), (ScoreShard{3, 4}));
  EXPECT_EQ(ScoreShard::parse("3/4").text(), "3/4");
  EXPECT_THAT(refusal("4/4"), AllOf(HasSubstr("found 4/4"), HasSubstr("the last is 3/4")));
  EXPECT_THAT(refusal("-1/4"), HasSubstr("the first is 0/4"));
  for (const char* const wrong : {"", "4", "/", "1/", "/2", "1/0", "a/b", "1/2/3", "0.5/2", "1/9999999"})
    EXPECT_THAT(refusal(wrong), HasSubstr("expected i/n")) << wrong;
}

TEST(ScoringOptions, TheGuidesNamesAreOnesOfScoring) {
  EXPECT_THAT(
      with_names_of_scoring({"max_samples=7", "batch_size=auto", "output_dir=a=b", "lr=1", "batch_size"}),
      ElementsAre("score_max_samples=7", "score_batch=auto", "score_output_dir=a=b", "lr=1", "batch_size"));
}

}  // namespace
}  // namespace adtrain
