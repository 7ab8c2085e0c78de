#include "base/Text.h"

#include <gtest/gtest.h>

namespace adtrain {
namespace {

TEST(Text, NearestNameFindsSlipsAndRefusesStrangers) {
  const std::vector<std::string> keys = {"tf_n_embd", "tf_n_head", "n_transit", "lr"};
  EXPECT_EQ(nearest_name("tf_n_emdb", keys), "tf_n_embd");
  EXPECT_EQ(nearest_name("N_transit", keys), "n_transit");
  EXPECT_EQ(nearest_name("trian", {"test", "train"}), "train");
  EXPECT_EQ(nearest_name("completely_else", keys), "");
}

TEST(Text, ANameAsLongAsAFileIsComparedWithNothing) {
  EXPECT_EQ(nearest_name(std::string(10'000'000, 'k'), {"tf_n_embd", "lr"}), "");
}

TEST(Text, TellsUtf8FromOtherBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("plain, ü, € and 𝄞"));
  for (const char* stray : {"\x80", "a\xff", "\xc3", "\xc3(", "\xe2\x82", "\xc0\xaf" /* overlong */,
                            "\xe0\x80\x80", "\xed\xa0\x80" /* a surrogate */, "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(is_utf8(stray));
  }
}

TEST(Text, AbridgesBetweenCharacters) {
  EXPECT_EQ(abridged("short"), "short");
  EXPECT_EQ(abridged(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(abridged(std::string(70'000, 'x'), 4), "xxxx… (70000 bytes)");
  EXPECT_EQ(abridged("aüüü", 4), "aü… (7 bytes)");
  EXPECT_EQ(abridged("a\xff\xc3"), "a??");
  EXPECT_EQ(abridged(std::string_view("a\0b\x1b[31m\n", 9)), "a?b?[31m\n");
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

TEST(Text, CountsInTheRightWord) {
  EXPECT_EQ(counted(1, "history", "histories"), "1 history");
  EXPECT_EQ(counted(0, "history", "histories"), "0 histories");
  EXPECT_EQ(counted(2, "history", "histories"), "2 histories");
  EXPECT_EQ(counted(12345, "history", "histories"), "12 345 histories");
}

}  // namespace
}  // namespace adtrain
