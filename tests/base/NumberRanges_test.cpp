#include "base/NumberRanges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string normal(std::string_view text) {
  const auto ranges = NumberRanges::parse(text);
  return ranges ? ranges->text() : "refused";
}

TEST(NumberRanges, AreWrittenInOneFormWhateverTheirOrder) {
  EXPECT_EQ(normal("7"), "7");
  EXPECT_EQ(normal("0-39, 50"), "0-39,50");
  EXPECT_EQ(normal("50,3,1-2,2-5,6"), "1-6,50");
  EXPECT_EQ(normal("4-4"), "4");
  EXPECT_EQ(normal("1-9,3-4"), "1-9");
  EXPECT_EQ(normal("999999999999"), "999999999999");
}

TEST(NumberRanges, RefuseWhatIsNone) {
  for (const char* text : {"", " ", ",", "1,", "a", "1-", "-1", "--1", "1--2", "5-3", "0..9", "1.5", "0x1",
                           "+1", "1 2", "9999999999999"}) {
    EXPECT_EQ(normal(text), "refused") << "'" << text << "'";
  }
}

TEST(NumberRanges, HoldNumbers) {
  const NumberRanges ranges = NumberRanges::parse("3-5,9").value();
  EXPECT_THAT(ranges.numbers(), ElementsAre(3, 4, 5, 9));
  EXPECT_EQ(ranges.count(), 4);
  EXPECT_EQ(ranges.smallest(), 3);
  EXPECT_EQ(ranges.largest(), 9);
  for (int64_t number = 0; number < 12; ++number) {
    EXPECT_EQ(ranges.contains(number), (number >= 3 && number <= 5) || number == 9) << number;
  }
  EXPECT_EQ(NumberRanges::of({5, 9, 3, 4}).text(), "3-5,9");
  EXPECT_EQ(NumberRanges::below(3).text(), "0-2");
  EXPECT_THAT(NumberRanges::below(0).numbers(), IsEmpty());
  EXPECT_EQ(NumberRanges().text(), "");
  EXPECT_FALSE(NumberRanges().contains(0));
}

TEST(NumberRanges, LeaveOutOthers) {
  const auto left = [](const char* all, const char* others) {
    return NumberRanges::parse(all)->without(NumberRanges::parse(others).value()).text();
  };
  EXPECT_EQ(left("0-9", "3-5"), "0-2,6-9");
  EXPECT_EQ(left("0-9,20-29", "5-24"), "0-4,25-29");
  EXPECT_EQ(left("0-9", "0,2,4-20"), "1,3");
  EXPECT_EQ(left("3,5,7", "3-7"), "");
  EXPECT_EQ(left("3,5,7", "4,8-9"), "3,5,7");
  EXPECT_EQ(NumberRanges::below(3).without(NumberRanges()).text(), "0-2");
}

TEST(NumberRange, IsReturnedAsWritten) {
  EXPECT_EQ(NumberRange::parse("9-3")->first, 9);
  EXPECT_EQ(NumberRange::parse("9-3")->last, 3);
  EXPECT_FALSE(NumberRange::parse("1-2-3").has_value());
}

}  // namespace
}  // namespace adtrain
