#include "data/formats/Episodes.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::ElementsAre;

template <class Value>
Column column(ColumnKind kind, ElementType type, const std::vector<Value>& values) {
  Column made{{kind, type, {}}, std::vector<uint8_t>(values.size() * sizeof(Value))};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

const Column kRewards = column<float>(ColumnKind::kRewards, ElementType::kFloat32, {1, 2, 4, 8, 16, 32, 64});

Column flags(ColumnKind kind, const std::vector<uint8_t>& values) {
  return column(kind, ElementType::kBool, values);
}

/// "LAST_STEP:STEPS:RETURN" of each episode, in windows of `length` steps.
std::vector<std::string> episodes(const std::vector<Column>& columns, int64_t length) {
  EpisodeFinder finder;
  std::vector<Episode> found;
  const int64_t steps = 7;
  for (int64_t first = 0; first < steps; first += length) {
    HistoryWindow window{std::min(length, steps - first), {}};
    for (const Column& whole : columns) {
      const auto row = static_cast<std::ptrdiff_t>(whole.type.row_bytes());
      const auto begin = whole.bytes.begin() + first * row;
      window.columns.push_back({whole.type, {begin, begin + window.steps * row}});
    }
    finder.add(window, found);
  }
  std::vector<std::string> texts;
  for (const Episode& episode : found)
    texts.push_back(fmt::format("{}:{}:{}", episode.last_step, episode.steps, episode.episode_return));
  return texts;
}

TEST(EpisodeFinder, EpisodesEndWhereAColumnSaysSo) {
  for (const int64_t length : {1, 2, 3, 7}) {
    EXPECT_THAT(episodes({kRewards, flags(ColumnKind::kEnds, {0, 0, 1, 0, 1, 0, 0})}, length),
                ElementsAre("2:3:7", "4:2:24"));
    EXPECT_THAT(episodes({kRewards, flags(ColumnKind::kTerminations, {0, 1, 0, 0, 0, 0, 0}),
                          flags(ColumnKind::kTruncations, {0, 0, 0, 0, 0, 0, 1})},
                         length),
                ElementsAre("1:2:3", "6:5:124"));
  }
}

TEST(EpisodeFinder, EpisodesEndBeforeAStepOfNumberZero) {
  const Column numbers =
      column<int32_t>(ColumnKind::kStepNumbers, ElementType::kInt32, {5, 6, 0, 1, 2, 0, 1});
  for (const int64_t length : {1, 2, 3, 7})
    EXPECT_THAT(episodes({kRewards, numbers}, length), ElementsAre("1:2:3", "4:3:28"));
  EXPECT_THAT(episodes({kRewards, numbers, flags(ColumnKind::kEnds, {0, 0, 0, 0, 0, 0, 1})}, 7),
              ElementsAre("6:7:127"))
      << "ends count before step numbers";
}

TEST(EpisodeFinder, KnowsWhatTellsOfEpisodes) {
  EXPECT_FALSE(EpisodeFinder::can_tell({{ColumnKind::kRewards, ElementType::kFloat32, {}}}));
  EXPECT_TRUE(EpisodeFinder::can_tell({{ColumnKind::kStepNumbers, ElementType::kInt32, {}}}));
}

TEST(Column, NamesTheFirstRowThatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  Column reals =
      column<float>(ColumnKind::kObservations, ElementType::kFloat32, {1, 3e38F, 0, 1, -infinity, 2});
  reals.type.row = {2};
  EXPECT_EQ(reals.first_not_finite(), 2);
  EXPECT_FALSE(kRewards.first_not_finite());
  const Column halves = column<uint16_t>(ColumnKind::kRewards, ElementType::kFloat16, {0x7bff, 0x7e00});
  EXPECT_EQ(halves.first_not_finite(), 1);
  EXPECT_EQ(halves.number(0), 65504);
  EXPECT_FALSE(column<uint16_t>(ColumnKind::kActions, ElementType::kUint16, {0xffff}).first_not_finite());
}

TEST(Column, NumbersAreThoseOfEveryType) {
  EXPECT_EQ(column<uint16_t>(ColumnKind::kRewards, ElementType::kFloat16, {0xc000}).number(0), -2);
  EXPECT_EQ(column<uint16_t>(ColumnKind::kRewards, ElementType::kFloat16, {0x0001}).number(0), 0x1p-24);
  EXPECT_EQ(column<int8_t>(ColumnKind::kRewards, ElementType::kInt8, {-5}).number(0), -5);
  EXPECT_EQ(column<uint32_t>(ColumnKind::kRewards, ElementType::kUint32, {4000000000U}).number(0), 4e9);
  EXPECT_EQ(column<int64_t>(ColumnKind::kRewards, ElementType::kInt64, {1, -(int64_t{1} << 40)}).number(1),
            -0x1p40);
  EXPECT_EQ(column<double>(ColumnKind::kRewards, ElementType::kFloat64, {.1}).number(0), .1);
}

}  // namespace
}  // namespace adtrain
