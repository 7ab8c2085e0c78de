#include "collectives/gloo/HostAddress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

TEST(HostAddress, IsLoopbackWhereAllRanksAreOnThisHost) {
  LaunchContext context;
  context.world_size = context.local_world_size = 2;
  context.master_address = "a name that is not even looked up";
  EXPECT_EQ(host_address(context), "127.0.0.1");
}

TEST(HostAddress, AMasterThatCannotBeResolvedIsNamed) {
  LaunchContext context;
  context.world_size = 2;
  context.master_address = "no-such-host.invalid";
  context.master_port = 29500;
  try {
    host_address(context);
    FAIL() << "no error";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("no-such-host.invalid"),
                                             testing::HasSubstr("MASTER_ADDR")));
  }
}

}  // namespace
}  // namespace adtrain
