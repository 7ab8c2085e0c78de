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
  for (const char* name : {"learning_rate", "per_device_train_batch_size", "accumulate_grad_batches",
                           "max_steps", "warmup_steps", "grad_clip", "dtype", "d_model", "num_layers",
                           "num_heads", "context_length", "output_dir", "logging_steps", "eval_steps",
                           "save_steps", "save_total_limit", "dataloader_num_workers", "env_id"}) {
    EXPECT_TRUE(keys.contains(key_called(name))) << name << " leads to " << key_called(name);
  }
}

}  // namespace
}  // namespace adtrain
