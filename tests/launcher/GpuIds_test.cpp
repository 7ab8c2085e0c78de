#include "launcher/GpuIds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

GpuIds ids(const std::string& text, const std::optional<std::string>& visible = std::nullopt) {
  return GpuIds::parse(text, visible);
}

std::string mistake(const std::string& text, const std::optional<std::string>& visible = std::nullopt) {
  try {
    ids(text, visible);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(GpuIds, KeepTheirOrder) {
  EXPECT_EQ(ids("2,0").text(), "2,0");
  EXPECT_EQ(ids(" 3 , 1,0").text(), "3,1,0");
  EXPECT_EQ(ids("3,1,0").count(), 3);
  EXPECT_EQ(ids("GPU-8932f937,GPU-f2a1").text(), "GPU-8932f937,GPU-f2a1");
}

TEST(GpuIds, RefusesWhatIsNone) {
  EXPECT_THAT(mistake("0,two"), HasSubstr("found 'two' in '0,two'"));
  EXPECT_THAT(mistake("-1"), HasSubstr("found '-1'"));
  EXPECT_THAT(mistake("0,,1"), HasSubstr("found ''"));
  EXPECT_THAT(mistake(""), HasSubstr("expected numbers as in 0,2"));
  EXPECT_THAT(mistake("GPU-"), HasSubstr("found 'GPU-'"));
  EXPECT_THAT(mistake("99999999999999999999"), HasSubstr("expected numbers"));
}

TEST(GpuIds, RefusesOneThatIsGivenTwice) {
  EXPECT_THAT(mistake("0,2,0"), HasSubstr("GPU 0 twice"));
  EXPECT_THAT(mistake("1,01"), HasSubstr("GPU 01 twice"));
  EXPECT_THAT(mistake("GPU-89,GPU-8932f937"), HasSubstr("GPU-8932f937 twice"));
}

TEST(GpuIds, MustBeAmongThoseThatAreVisible) {
  EXPECT_EQ(ids("3,0", "0, 1,3").text(), "3,0");
  EXPECT_EQ(ids("GPU-89", "GPU-8932f937,GPU-f2a1").text(), "GPU-89");
  EXPECT_THAT(mistake("0,2", "0,1"), HasSubstr("GPU 2 is not in CUDA_VISIBLE_DEVICES='0,1'"));
  EXPECT_THAT(mistake("0", ""), HasSubstr("unset the variable"));
  EXPECT_THAT(mistake("0", "GPU-8932f937"), HasSubstr("name GPUs as that list does"));
}

TEST(GpuIds, MustAllBeShownByCuda) {
  EXPECT_NO_THROW(ids("0,2").check_shown(2));
  EXPECT_THROW(ids("0").check_shown(0), EnvironmentError);
  try {
    ids("0,9,1").check_shown(1);
    FAIL() << "one of three is enough";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CUDA shows 1 of these 3 GPUs, and stops at 9"));
  }
}

}  // namespace
}  // namespace adtrain
