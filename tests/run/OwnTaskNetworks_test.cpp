// What a configuration says of networks over tasks of any space.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "run/RunConfig.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(OwnTaskNetworks, TheirKeysHaveNoEffectOnGridFamilies) {
  const TemporaryFolder folder;
  write_file(folder.path() / "grid.yaml", "env: darkroom\n");
  std::vector<std::string> notices;
  RunConfig::load(folder.path() / "grid.yaml", {"action_head=mse", "observation_encoder=mlp"}, notices);
  EXPECT_THAT(notices, Contains(HasSubstr("action_head = mse has no effect")));
  EXPECT_THAT(notices, Contains(HasSubstr("observation_encoder = mlp has no effect")));
}

}  // namespace
}  // namespace adtrain
