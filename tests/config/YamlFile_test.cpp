#include "config/YamlFile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// The one error of a text that has just one.
std::string error_in(const std::string& text) {
  const YamlFile file = YamlFile::parse(text, "f.yaml");
  EXPECT_EQ(file.errors.size(), 1U);
  return file.errors.empty() ? "" : file.errors.front();
}

TEST(YamlFile, ReadsKeysWithTheirKindsAndLines) {
  const YamlFile file = YamlFile::parse(
      "# a run\n"
      "lr: 3e-4   # peak\n"
      "\n"
      "run_name: 'null'\n"
      "horizon: ~\n"
      "empty:\n"
      "sizes: [1, 2]\n"
      "map: {a: 1,\n  b: 2}\n",
      "f.yaml");
  ASSERT_THAT(file.errors, IsEmpty());
  ASSERT_EQ(file.entries.size(), 6U);
  EXPECT_EQ(file.entries[0].found(), "'3e-4'");
  EXPECT_EQ(file.entries[0].origin.text(), "f.yaml:2");
  EXPECT_EQ(file.entries[1].found(), "'null'");
  EXPECT_EQ(file.entries[2].found(), "null");
  EXPECT_EQ(file.entries[3].found(), "null");
  EXPECT_EQ(file.entries[3].origin.line, 6);
  EXPECT_EQ(file.entries[4].found(), "the list [1, 2]");
  EXPECT_EQ(file.entries[5].found(), "the nested map {a: 1, b: 2}");
}

TEST(YamlFile, TellsIncludesFromKeys) {
  const YamlFile one = YamlFile::parse("lr: 1\ninclude: base.yaml\n", "f.yaml");
  ASSERT_EQ(one.includes.size(), 1U);
  EXPECT_EQ(one.includes[0].text, "base.yaml");
  EXPECT_EQ(one.includes[0].origin.line, 2);
  EXPECT_EQ(one.entries.size(), 1U);
  const YamlFile two = YamlFile::parse("include:\n  - a.yaml\n  - b.yaml\n", "f.yaml");
  ASSERT_EQ(two.includes.size(), 2U);
  EXPECT_EQ(two.includes[1].text, "b.yaml");
  EXPECT_EQ(two.includes[1].origin.line, 3);
}

TEST(YamlFile, RefusesIncludesThatNameNoFiles) {
  EXPECT_EQ(error_in("include: {a: 1}\n"),
            "f.yaml:1: include: found the nested map {a: 1}; expected a file's name or a list of them");
  EXPECT_THAT(error_in("include: []\n"), HasSubstr("include: found the list []"));
  EXPECT_THAT(error_in("a: 1\ninclude:\n"), StartsWith("f.yaml:2: include: found null"));
  EXPECT_THAT(error_in("include: [[a]]\n"), HasSubstr("a list of them"));
}

TEST(YamlFile, AcceptsARepeatedKeyWithTheSameMeaning) {
  const YamlFile file = YamlFile::parse("lr: 1e-3\ndynamics: False\nlr: 0.001\ndynamics: no\n", "f.yaml");
  EXPECT_THAT(file.errors, IsEmpty());
  EXPECT_EQ(file.entries.size(), 2U);
  EXPECT_THAT(file.warnings,
              ElementsAre("f.yaml:3: lr: found again with the same value as in line 1; one can go",
                          "f.yaml:4: dynamics: found again with the same value as in line 2; one can go"));
}

TEST(YamlFile, RefusesARepeatedKeyWithAnotherValueAndNamesBothLines) {
  EXPECT_EQ(error_in("lr: 1e-3\nn: 1\nlr: 1e-4\n"),
            "f.yaml:3: lr: found '1e-4', but line 1 says '1e-3'; expected the key once");
  EXPECT_THAT(error_in("lr: 1e-3\nlr:\n"), HasSubstr("f.yaml:2: lr: found null, but line 1 says '1e-3'"));
}

TEST(YamlFile, BlamesTheLineThatIsNoYaml) {
  EXPECT_THAT(error_in("a: 1\nlr 3e-4\nb: 2\n"),
              AllOf(StartsWith("f.yaml:2: found `lr 3e-4`; expected"), HasSubstr("key: value")));
  EXPECT_THAT(error_in("a: 1\nlr:3e-4\n\n# b\nb: 2\n"), StartsWith("f.yaml:2: found `lr:3e-4`; expected"));
  EXPECT_THAT(error_in("a: 1\n\tb: 2\n"), AllOf(StartsWith("f.yaml:2: found `b: 2`"), HasSubstr("tab")));
  EXPECT_THAT(error_in("a: 1\nb: x: y\n"), StartsWith("f.yaml:2: found `b: x: y`"));
  EXPECT_THAT(error_in("a: 1\nb: *nowhere\n"), StartsWith("f.yaml:2: found `b: *nowhere`"));
  EXPECT_THAT(error_in("a: 1\nb: [1, 2\n"), StartsWith("f.yaml:2: found `b: [1, 2`"));
}

TEST(YamlFile, RefusesAQuoteThatWouldSwallowTheRest) {
  EXPECT_THAT(error_in("a: 1\nname: 'darkroom\nb: 2\n"),
              AllOf(StartsWith("f.yaml:2: name: found `name: 'darkroom`"), HasSubstr("closing quote")));
  EXPECT_THAT(YamlFile::parse("name: 'dark''room'\nother: \"x\"\na: &name 'x'\nb: *name\n", "f.yaml").errors,
              IsEmpty());
}

TEST(YamlFile, RefusesWhatIsNoMap) {
  EXPECT_EQ(error_in("- 1\n- 2\n"), "f.yaml:1: found the list [1, 2]; expected `key: value` lines");
  EXPECT_EQ(error_in("\njust words\n"), "f.yaml:2: found 'just words'; expected `key: value` lines");
  EXPECT_EQ(error_in(""), "f.yaml:1: found nothing but comments; expected `key: value` lines");
  EXPECT_EQ(error_in("# nothing\n"), "f.yaml:1: found nothing but comments; expected `key: value` lines");
  EXPECT_THAT(error_in("a: 1\n---\nb: 2\n"), HasSubstr("found a second YAML document"));
  EXPECT_THAT(error_in("? [1, 2]\n: 3\n"), HasSubstr("found the list [1, 2] as a key"));
}

TEST(YamlFile, BracketsWithoutEndAreAnErrorNotACrash) {
  for (const char* opening : {"[", "{", "- ", "? ", "a: [", "{a: "}) {
    std::string text = "a: 1\nsteps: ";
    for (int i = 0; i < 20'000; ++i) text += opening;
    EXPECT_FALSE(YamlFile::parse(text, "f.yaml").errors.empty()) << opening;
  }
}

TEST(YamlFile, AliasesOfAliasesAreNotWrittenOut) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 30; ++i) {  // written out, 9³¹ of them
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int copy = 0; copy < 8; ++copy) text += ", " + before;
    text += "]\n";
  }
  const YamlFile file = YamlFile::parse(text, "f.yaml");
  EXPECT_EQ(file.entries.size(), 31U);
  size_t bytes = 0;
  for (const Entry& entry : file.entries) bytes += entry.text.size();
  EXPECT_LT(bytes, 100'000U);
}

TEST(YamlFile, WhatBelongsToNoDocumentIsAnErrorNotALoop) {
  EXPECT_THAT(error_in(",a: 1\n"), HasSubstr("f.yaml:1: found `,a: 1`; expected"));
  EXPECT_THAT(error_in("]"), HasSubstr("f.yaml:1: found `]`; expected"));
  EXPECT_THAT(error_in("---\n---\n---\n"), HasSubstr("a second YAML document"));
}

TEST(YamlFile, MessagesShowALittleOfAHugeValue) {
  const std::string huge(500'000, 'x');
  const std::string error = error_in("a: " + huge + "\na: 1\n");
  EXPECT_LT(error.size(), 1000U);
  EXPECT_THAT(error, HasSubstr("500000 bytes"));
  EXPECT_LT(error_in(huge + ": 1\n" + huge + ": 2\n").size(), 1000U);
  EXPECT_LT(error_in("a: [" + huge + "\n").size(), 1000U);
}

TEST(YamlFile, AHundredThousandKeysTakeNoTime) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(YamlFile::parse(text, "f.yaml").entries.size(), 100'000U);
}

}  // namespace
}  // namespace adtrain
