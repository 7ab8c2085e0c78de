#include "collectives/NcclVersion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

namespace adtrain {
namespace {

TEST(NcclVersion, IsThatOfTheHeadersThatWeWereBuiltWith) {
  const std::string built = std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + ".";
  EXPECT_THAT(nccl_version(), testing::StartsWith(built));
}

}  // namespace
}  // namespace adtrain
