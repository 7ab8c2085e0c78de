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

/// What `adtrain validate --explain` prints as a default can be written into a file.
TEST(OtherNames, DefaultsAreAllowedValues) {
  RunConfig config;
  for (Section& section : config.sections()) {
    for (Key& key : section.keys()) {
      const std::string& text = key.default_text();
      const std::string bare = text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
      EXPECT_EQ(key.assign(bare, text == "null"), std::nullopt) << key.name() << ": " << text;
    }
  }
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
