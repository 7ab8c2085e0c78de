#include "config/Reference.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "config/SampleOptions.h"

namespace adtrain {
namespace {

TEST(Reference, ExplainsEveryKeyUnderItsSection) {
  SampleOptions options;
  Section section("Sample");
  options.declare(section);
  const std::string text = explain({&section});
  EXPECT_EQ(text.substr(0, text.find("  masked")),
            "Sample\n"
            "  steps: 100\n"
            "      Length.\n"
            "      Allowed: a whole number of steps, at least 1 and at most 1000000.\n"
            "  rate: 0.0003\n"
            "      Peak.\n"
            "      Allowed: a number, above 0 and below 1.\n");
  EXPECT_NE(text.find("Allowed: a number, above 0, or null. Also called max_norm.\n"), std::string::npos);
  EXPECT_NE(text.find("  gen_interval: ignored: there is nothing to generate\n"), std::string::npos);
}

TEST(Reference, ValuesAreTypedJson) {
  int64_t steps = 12;
  double rate = 3e-4;
  bool masked = true;
  std::string name = "first run";
  std::optional<int64_t> limit;
  Section section("Run");
  section.key("steps", steps, "Length.");
  section.key("rate", rate, "Peak.");
  section.key("masked", masked, "Or not.");
  section.key("name", name, "Folder.");
  section.key("limit", limit, "If any.");
  EXPECT_EQ(values_json({&section}),
            R"({"steps":12,"rate":0.0003,"masked":true,"name":"first run","limit":null})");
}

TEST(Reference, SaysWhichKeysMayChangeOnResume) {
  int64_t batch = 1, ranks = 2, seed = 3;
  Section section("Run");
  section.key("batch", batch, "Rows.").free_on_resume(", as long as ranks stays");
  section.key("ranks", ranks, "Processes.");
  section.all_free_on_resume({"ranks"});
  section.key("seed", seed, "Chance.");
  const std::string text = explain({&section});
  EXPECT_NE(text.find("May change on --resume, as long as ranks stays.\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("May change"), text.rfind("May change")) << text;
  const auto json = nlohmann::json::parse(explain_json({&section}));
  std::vector<bool> free;
  for (const auto& key : json["sections"][0]["keys"]) free.push_back(key["free_on_resume"]);
  EXPECT_EQ(free, (std::vector<bool>{true, false, false}));
}

TEST(Reference, WrapsLongSentencesForATerminal) {
  int64_t member = 1;
  Section section("Long");
  std::string sentence;
  for (int i = 0; i < 60; ++i) sentence += "word" + std::to_string(i) + " ";
  section.key("key", member, sentence);
  std::istringstream lines(explain({&section}));
  std::string words;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U);
    if (line.starts_with("      word")) words += line.substr(6) + " ";
  }
  EXPECT_EQ(words, sentence);
}

TEST(Reference, JsonHoldsTypedDefaultsAndEverythingElse) {
  SampleOptions options;
  options.folder = "null";
  Section section("Sample");
  options.declare(section);
  const auto json = nlohmann::json::parse(explain_json({&section}));
  ASSERT_EQ(json["sections"].size(), 1U);
  const auto& sample = json["sections"][0];
  EXPECT_EQ(sample["title"], "Sample");
  ASSERT_EQ(sample["keys"].size(), 8U);
  const auto key = [&](const std::string& name) {
    for (const auto& candidate : sample["keys"]) {
      if (candidate["name"] == name) return candidate;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(key("steps")["default"], 100);
  EXPECT_EQ(key("steps")["type"], "integer");
  EXPECT_EQ(key("steps")["unit"], "steps");
  EXPECT_EQ(key("rate")["default"], 3e-4);
  EXPECT_EQ(key("masked")["default"], false);
  EXPECT_EQ(key("folder")["default"], "null");
  EXPECT_TRUE(key("horizon")["default"].is_null());
  EXPECT_EQ(key("horizon")["optional"], true);
  EXPECT_EQ(key("block")["choices"], nlohmann::json({"pre_norm", "post_norm"}));
  EXPECT_EQ(key("block")["default"], "pre_norm");
  EXPECT_EQ(key("clip")["aliases"], nlohmann::json({"max_norm"}));
  EXPECT_EQ(sample["ignored"][0]["name"], "gen_interval");
  EXPECT_EQ(sample["ignored"][0]["reason"], "there is nothing to generate");
}

}  // namespace
}  // namespace adtrain
