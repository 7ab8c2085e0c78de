#include "checkpoint/Pickle.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using namespace std::string_literals;
using Kind = Pickle::Kind;
using testing::HasSubstr;

Pickle parse(const std::string& opcodes) {
  return Pickle::parse("\x80\x02" + opcodes + ".", "a.pt");
}

std::string refusal_of(const std::string& opcodes) {
  try {
    parse(opcodes);
    return "none";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST(Pickle, PlainValues) {
  // {"a": -5, "b": 1.5, "c": [True, None, (2,)]}, as pickle.dumps(…, 2) writes it.
  const Pickle pickle = parse(
      "}q\0(X\1\0\0\0aq\1J\xfb\xff\xff\xffX\1\0\0\0bq\2G\x3f\xf8\0\0\0\0\0\0X\1\0\0\0cq\3]q\4(\x88NK\2\x85q\5eu"s);
  const Pickle::Value& root = pickle.root();
  EXPECT_EQ(pickle.find(root, "a")->integer, -5);
  EXPECT_EQ(pickle.find(root, "b")->real, 1.5);
  const Pickle::Value& list = *pickle.find(root, "c");
  ASSERT_EQ(list.parts.size(), 3U);
  EXPECT_EQ(pickle.at(list.parts[0]).kind, Kind::kBoolean);
  EXPECT_EQ(pickle.at(list.parts[1]).kind, Kind::kNone);
  EXPECT_EQ(pickle.at(pickle.at(list.parts[2]).parts[0]).integer, 2);
  EXPECT_EQ(pickle.find(root, "d"), nullptr);
}

TEST(Pickle, LongNumbersKeepTheirSign) {
  EXPECT_EQ(parse("\x8a\1\xff"s).root().integer, -1);
  EXPECT_EQ(parse("\x8a\0"s).root().integer, 0);
  EXPECT_EQ(parse("\x8a\6\0\x10\xa5\xd4\xe8\0"s).root().integer, 1'000'000'000'000);
  EXPECT_THAT(refusal_of("\x8a\t123456789"s), HasSubstr("at most 8"));
}

TEST(Pickle, RunsNothing) {
  for (const std::string name :
       {"os\nsystem", "builtins\neval", "torch._utils\n_rebuild_qtensor", "torch\nload"}) {
    const std::string refusal = refusal_of("c" + name + "\nX\2\0\0\0ls\x85R"s);
    EXPECT_THAT(refusal, HasSubstr("not one of the types that are known")) << name;
    EXPECT_THAT(refusal, HasSubstr("at byte 2")) << name;
  }
  EXPECT_THAT(refusal_of("cos\nsystem"), HasSubstr("without an end"));
}

TEST(Pickle, UnknownOpcodesAreNamedWithTheirPlace) {
  for (const char opcode : {'i', 'o', '\x81', '\x93', '\x94', 'P', '0', '2', 'I', 'S', 'V', '\x82'})
    EXPECT_THAT(refusal_of("N"s + opcode), HasSubstr("at byte 3")) << static_cast<int>(opcode);
  EXPECT_THAT(refusal_of("\x80\4"), HasSubstr("protocol 4"));
}

TEST(Pickle, MisuseOfTheStackIsRefused) {
  EXPECT_THAT(refusal_of(""), HasSubstr("0 values left"));
  EXPECT_THAT(refusal_of("NN"), HasSubstr("2 values left"));
  EXPECT_THAT(refusal_of("a"), HasSubstr("there is none"));
  EXPECT_THAT(refusal_of("t"), HasSubstr("no mark"));
  EXPECT_THAT(refusal_of("]N(a"), HasSubstr("there is none"));
  EXPECT_THAT(refusal_of("h\7"), HasSubstr("memory"));
  EXPECT_THAT(refusal_of("NNa"), HasSubstr("list"));
  EXPECT_THAT(refusal_of("}(Nu"), HasSubstr("pairs"));
  EXPECT_THAT(refusal_of("X\xff\xff\xff\x7f"), HasSubstr("end of the bytes"));
  EXPECT_THAT(refusal_of("NQ"), HasSubstr("storage"));
}

TEST(Pickle, DepthIsBoundedAndNothingContainsItself) {
  EXPECT_THAT(refusal_of("]q\0h\0a"s), HasSubstr("deep"));
  std::string nested = std::string(100'000, ']') + std::string(99'999, 'a');
  EXPECT_THAT(refusal_of(nested), HasSubstr("deep"));
  nested = std::string(60, ']') + std::string(59, 'a');
  EXPECT_EQ(refusal_of(nested), "none");
}

}  // namespace
}  // namespace adtrain
