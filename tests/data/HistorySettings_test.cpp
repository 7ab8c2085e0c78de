#include "data/HistorySettings.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string complaint(const HistorySettings& found, const HistorySettings& expected) {
  try {
    check_collected_with("a.hdf5", found, expected);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(HistorySettings, WhatAFileDoesNotSayIsAddedToIt) {
  const std::string said = complaint({{"env", "darkroom"}, {"gamma", "0.9"}},
                                     {{"env", "darkroom"}, {"gamma", "0.99"}, {"horizon", "20"}});
  EXPECT_THAT(said, AllOf(HasSubstr("horizon absent (the configuration says 20)"),
                          HasSubstr("use this file with --set gamma=0.9;"),
                          HasSubstr("(h5py: file.attrs['horizon'] = '20')"), Not(HasSubstr("horizon=null"))));
}

TEST(HistorySettings, WhatFilesSayOnlyWhereItIsUsedIsSetBack) {
  EXPECT_THAT(complaint({{"env", "darkroom"}},
                        {{"env", "darkroom"}, {"kept_streams", "4"}, {"source_policies", "8"}}),
              AllOf(HasSubstr("--set kept_streams=null --set source_policies=1"), Not(HasSubstr("h5py"))));
}

TEST(HistorySettings, OtherAttributesArePassedOver) {
  const HistorySettings expected = {{"env", "darkroom"}, {"horizon", "20"}};
  EXPECT_EQ(complaint({{"author", "me"}}, expected), "no complaint") << "a file without settings";
  EXPECT_EQ(complaint({{"author", "me"}, {"env", "darkroom"}, {"horizon", "20"}}, expected), "no complaint");
  EXPECT_THAT(complaint({{"author", "me"}, {"env", "darkroom"}, {"horizon", "30"}}, expected),
              Not(HasSubstr("author")));
}

}  // namespace
}  // namespace adtrain
