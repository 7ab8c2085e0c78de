#include "run/figures/ReturnTable.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WrittenRuns.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ReturnTable, ARowIsTheMeanOverSeedsAndTheBestIsNamed) {
  const WrittenRuns written;
  std::vector<RecordedRun> runs = {written.add("a", "lr: 0.003\nseed: 1\n"),
                                   written.add("b", "lr: 0.001\nseed: 1\n"),
                                   written.add("c", "lr: 0.003\nseed: 2\n")};
  written.evaluation("a", {1, 10});
  written.evaluation("b", {3, 12});
  written.evaluation("c", {2, 16});
  const ReturnTable table = ReturnTable::of(runs, {});
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_THAT(table.rows[0].runs, ElementsAre(HasSubstr("a"), HasSubstr("c")));
  EXPECT_EQ(table.rows[0].first_episode.mean, 1.5);
  EXPECT_EQ(table.rows[0].last_ten.mean, 13);
  EXPECT_NEAR(table.rows[0].last_ten.high - 13, 3, 1e-12);  // (16 − 10) / 2
  EXPECT_EQ(table.best, 0U);
  EXPECT_EQ(table.text(),
            "            runs  episode 1    last ten episodes\n"
            "  lr 0.003  2     1.50 ± 0.50  13.00 ± 3.00\n"
            "  lr 0.001  1     3.00         12.00\n"
            "highest return over the last ten episodes: lr 0.003\n");
  EXPECT_THAT(table.csv(), HasSubstr("\n\"lr 0.003\",2,1.5,1,2,13,"));
  EXPECT_EQ(table.json()[1].at("last_ten").at("mean"), 12);
}

TEST(ReturnTable, BootstrapShowsBothEnds) {
  const WrittenRuns written;
  std::vector<RecordedRun> runs = {written.add("a", "seed: 1\n"), written.add("b", "seed: 2\n")};
  written.evaluation("a", {1, 10});
  written.evaluation("b", {2, 16});
  FigureContent content;
  content.interval = Interval::kBootstrap;
  const std::string text = ReturnTable::of(runs, content).text();
  EXPECT_THAT(text, HasSubstr("all runs"));
  EXPECT_THAT(text, HasSubstr("13.00 [10.00, 16.00]"));
}

}  // namespace
}  // namespace adtrain
