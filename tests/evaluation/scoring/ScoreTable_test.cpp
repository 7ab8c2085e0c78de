#include "evaluation/scoring/ScoreTable.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

TEST(ScoreTable, RowsComeBackFromTheFile) {
  for (const ScoreTable::Layout layout : {ScoreTable::Layout{1, false}, {3, false}, {2, true}}) {
    ScoreTable table(layout);
    for (int64_t row = 0; row < 300; ++row) {
      std::vector<double> action(static_cast<size_t>(layout.elements), layout.real ? 0.25 : 4.0);
      table.append({row * 7, row % 3, row % 2, row, action, {0.5F, 1.5F, row}});
      if (row % 50 != 0) continue;
      const ScoreTable read = ScoreTable::from_npy(layout, table.npy(), "file");
      ASSERT_EQ(read.size(), row + 1);
      EXPECT_EQ(read.bytes(), table.bytes());
      EXPECT_EQ(read[row].sample, row * 7);
      EXPECT_EQ(read[row].action, action);
      EXPECT_EQ(read[row].score.rank, row);
    }
    EXPECT_EQ(ScoreTable::from_npy(layout, ScoreTable(layout).npy(), "file").size(), 0);
    const std::string whole = table.npy();
    for (const std::string& damaged : {std::string(), whole.substr(0, 9), whole.substr(0, whole.size() - 1),
                                       whole + "x", ScoreTable({4, true}).npy()}) {
      EXPECT_THROW(ScoreTable::from_npy(layout, damaged, "file"), DataError) << damaged.size();
    }
  }
}

TEST(ScoreTable, TextLeavesOutWhatThereIsNot) {
  ScoreTable whole({1, false});
  whole.append({5, 2, 0, 31, {4}, {0.25F, 1.386F, 3}});
  EXPECT_EQ(whole.csv(),
            "sample,task,stream,position,action,probability,loss,rank\n5,2,0,31,4,0.25,1.386,3\n");
  ScoreTable real({2, true});
  real.append({5, 2, 1, 31, {0.5, -2}, {kNone, 0.125F, ActionScore::kNoRank}});
  real.append({6, 3, 1, 31, {0.5}, {kNone, kNone, ActionScore::kNoRank}});
  EXPECT_EQ(real.csv(),
            "sample,task,stream,position,action_0,action_1,probability,loss,rank\n5,2,1,31,0.5,-2,,0.125,\n"
            "6,3,1,31,0.5,,,,\n");
}

TEST(ScoreTable, AnActionOfMinusOneIsNoNumberThatAnActionLacks) {
  ScoreTable whole({2, false});
  whole.append({0, 0, 0, 23, {-1}, {0.5F, 0.75F, 1}});
  whole.append({1, 1, 0, 23, {-1, 3}, {0.5F, 0.75F, 1}});
  const ScoreTable read = ScoreTable::from_npy(whole.layout(), whole.npy(), "file");
  EXPECT_EQ(read.csv(),
            "sample,task,stream,position,action_0,action_1,probability,loss,rank\n0,0,0,23,-1,,0.5,0.75,1\n"
            "1,1,0,23,-1,3,0.5,0.75,1\n");
  EXPECT_EQ(read[0].action[0], -1);
  EXPECT_TRUE(std::isnan(read[0].action[1]));
}

}  // namespace
}  // namespace adtrain
