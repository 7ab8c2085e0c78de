#include "config/OtherNames.h"

#include <set>

#include <gtest/gtest.h>

#include "run/RunConfig.h"

namespace adtrain {
namespace {

TEST(OtherNames, AreKnownInAnySpelling) {
  EXPECT_EQ(key_called("learning_rate"), "lr");
  EXPECT_EQ(key_called("Learning-Rate"), "lr");
  EXPECT_EQ(key_called("epochs"), "train_timesteps");
  EXPECT_EQ(key_called("nonsense"), "");
}

/// Every name that leads anywhere leads to a key that exists, and is none itself.
TEST(OtherNames, LeadToKeys) {
  RunConfig config;
  std::set<std::string> keys;
  for (const Section& section : config.sections()) {
    for (const Key& key : section.keys()) {
      keys.insert(key.name());
      EXPECT_EQ(key_called(key.name()), "") << "a key needs no other name";
    }
  }
  for (const auto& [name, key] : other_names()) {
    EXPECT_TRUE(keys.contains(key)) << name << " leads to " << key;
  }
}

}  // namespace
}  // namespace adtrain
