#include "config/Scalar.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "support/FreshSeed.h"

namespace adtrain {
namespace {

TEST(Scalar, WholeNumbersInAllTheirSpellings) {
  EXPECT_EQ(Scalar<int64_t>::parse("512"), 512);
  EXPECT_EQ(Scalar<int64_t>::parse("+512"), 512);
  EXPECT_EQ(Scalar<int64_t>::parse("-3"), -3);
  EXPECT_EQ(Scalar<int64_t>::parse("0"), 0);
  EXPECT_EQ(Scalar<int64_t>::parse("100_000"), 100000);
  EXPECT_EQ(Scalar<int64_t>::parse("1e5"), 100000);
  EXPECT_EQ(Scalar<int64_t>::parse("100000.0"), 100000);
  EXPECT_EQ(Scalar<int64_t>::parse("9223372036854775807"), std::numeric_limits<int64_t>::max());
}

TEST(Scalar, RefusesWhatIsNoWholeNumber) {
  for (const char* text : {"", "abc", "1.5", "1e-3", "1e30", "12 ", " 12", "0x10", "010", "1:30", "1_", "_1",
                           "1__0", "+-1", "nan", "inf", "--1", "true", "92233720368547758080"}) {
    EXPECT_EQ(Scalar<int64_t>::parse(text), std::nullopt) << text;
  }
}

TEST(Scalar, RealNumbersAndWhatIsNone) {
  EXPECT_EQ(Scalar<double>::parse("1e-3"), 1e-3);
  EXPECT_EQ(Scalar<double>::parse("0.0003"), 0.0003);
  EXPECT_EQ(Scalar<double>::parse(".5"), 0.5);
  EXPECT_EQ(Scalar<double>::parse("1."), 1.0);
  EXPECT_EQ(Scalar<double>::parse("-2.5E+2"), -250.0);
  EXPECT_EQ(Scalar<double>::parse("3"), 3.0);
  for (const char* text : {"", "abc", "1e", "1,5", ".nan", "nan", "inf", ".inf", "1e999", "00.5", "0.5x"}) {
    EXPECT_EQ(Scalar<double>::parse(text), std::nullopt) << text;
  }
}

TEST(Scalar, TruthValuesOfYaml11) {
  for (const char* text : {"true", "True", "TRUE", "yes", "Yes", "on", "ON"}) {
    EXPECT_EQ(Scalar<bool>::parse(text), true) << text;
  }
  for (const char* text : {"false", "False", "FALSE", "no", "No", "off", "OFF"}) {
    EXPECT_EQ(Scalar<bool>::parse(text), false) << text;
  }
  for (const char* text : {"", "1", "0", "y", "n", "truth"})
    EXPECT_EQ(Scalar<bool>::parse(text), std::nullopt) << text;
}

TEST(Scalar, RandomNumbersSurviveWritingExactly) {
  std::mt19937_64 random(fresh_seed());
  for (int i = 0; i < 2000; ++i) {
    const auto whole = static_cast<int64_t>(random());
    EXPECT_EQ(Scalar<int64_t>::parse(Scalar<int64_t>::write(whole)), whole);
    const double real = std::ldexp(static_cast<double>(whole), static_cast<int>(random() % 400) - 200);
    EXPECT_EQ(Scalar<double>::parse(Scalar<double>::write(real)), real);
  }
}

TEST(Scalar, RealsAreWrittenAsPythonReadsThem) {
  EXPECT_EQ(Scalar<double>::write(1e-5), "1.0e-05");
  EXPECT_EQ(Scalar<double>::write(1.5e-8), "1.5e-08");
  EXPECT_EQ(Scalar<double>::write(1), "1.0");
  EXPECT_EQ(Scalar<double>::write(0.0003), "0.0003");
}

TEST(Scalar, TextsAreQuotedWhereTheyCouldBeMistaken) {
  EXPECT_EQ(Scalar<std::string>::write("histories/darkroom-80.v2"), "histories/darkroom-80.v2");
  for (const std::string text : {"", "no", "Null", "y", "~", "12", "1e5", "a: b", "a #b", "- a", "[a]",
                                 "say \"so\"", " a", "a\nb", "../histories", "2020-01-01"}) {
    const std::string written = Scalar<std::string>::write(text);
    EXPECT_TRUE(written.starts_with('"') && written.ends_with('"')) << written;
  }
}

TEST(Scalar, SameMeaningComparesNumbersAndTruthValues) {
  EXPECT_TRUE(same_meaning("1e-3", "0.001"));
  EXPECT_TRUE(same_meaning("True", "on"));
  EXPECT_TRUE(same_meaning("darkroom", "darkroom"));
  EXPECT_FALSE(same_meaning("darkroom", "Darkroom"));
  EXPECT_FALSE(same_meaning("1", "true"));
  EXPECT_FALSE(same_meaning("1", "2"));
}

}  // namespace
}  // namespace adtrain
