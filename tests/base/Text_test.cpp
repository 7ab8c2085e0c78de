#include "base/Text.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(Text, NearestNameFindsSlipsAndRefusesStrangers) {
  const std::vector<std::string> keys = {"tf_n_embd", "tf_n_head", "n_transit", "lr"};
  EXPECT_EQ(nearest_name("tf_n_emdb", keys), "tf_n_embd");
  EXPECT_EQ(nearest_name("N_transit", keys), "n_transit");
  EXPECT_EQ(nearest_name("completely_else", keys), "");
}

TEST(Text, FiguresForPeople) {
  EXPECT_EQ(grouped(1234567), "1 234 567");
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(human_duration(8.24), "8.2 s");
  EXPECT_EQ(human_duration(185), "3 min 05 s");
  EXPECT_EQ(human_duration(7800), "2 h 10 min");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
}

}  // namespace
}  // namespace adtrain
