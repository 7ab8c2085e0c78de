#include "config/Binder.h"

#include <algorithm>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "config/ConfigTree.h"
#include "config/SampleOptions.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// Reads run.yaml and `assignments` into `options`; returns the notices.
std::vector<std::string> bind(SampleOptions& options, const std::vector<std::string>& assignments = {}) {
  Document document;
  document.read_file("run.yaml");
  for (const std::string& assignment : assignments) document.set(assignment);
  Section section("Sample");
  options.declare(section);
  return Binder({&section}).bind(document, [&](Findings& findings) { options.check(findings); });
}

/// What the ConfigError of run.yaml says.
std::string complaint(const std::vector<std::string>& assignments = {}) {
  SampleOptions options;
  try {
    bind(options, assignments);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    return error.what();
  }
  ADD_FAILURE() << "nothing was wrong";
  return "";
}

TEST(Binder, FillsMembersAndLeavesTheRestAtTheirDefaults) {
  const ConfigTree tree;
  tree.write("run.yaml", "steps: 1e3\nrate: 1e-3\nblock: POST_NORM\nmasked: True\nhorizon: 50\n");
  SampleOptions options;
  EXPECT_THAT(bind(options, {"rate=0.5"}), IsEmpty());
  EXPECT_EQ(options.steps, 1000);
  EXPECT_EQ(options.rate, 0.5);
  EXPECT_EQ(options.block, Block::kPostNorm);
  EXPECT_TRUE(options.masked);
  EXPECT_EQ(options.horizon, 50);
  EXPECT_EQ(options.folder, "histories");
}

TEST(Binder, TellsEverythingThatIsWrongInOneGo) {
  const ConfigTree tree;
  tree.write("base.yaml", "stepps: 5\nmasked: maybe\n");
  tree.write("run.yaml",
             "include: base.yaml\nsteps: 0\nblock: prenorm\nrate: [1, 2]\nhorizon: {a: "
             "1}\nfolder:\ndevice_map: {a: cpu}\n"
             "clip: 1\nclip: 2\n");
  EXPECT_EQ(
      complaint({"resume=newest"}),
      "run.yaml:9: clip: found '2', but line 8 says '1'; expected the key once\n"
      "base.yaml:1: stepps: found an unknown key; expected one of the known keys; did you mean steps?\n"
      "run.yaml:7: device_map: found an unknown nested map, {a: cpu}; expected flat `key: value` lines\n"
      "base.yaml:2: masked: found 'maybe'; expected true or false\n"
      "run.yaml:2: steps: found '0'; expected a whole number of steps, at least 1 and at most 1000000\n"
      "run.yaml:3: block: found 'prenorm'; expected pre_norm or post_norm; did you mean pre_norm?\n"
      "run.yaml:4: rate: found the list [1, 2]; expected a number, above 0 and below 1\n"
      "run.yaml:5: horizon: found the nested map {a: 1}; expected a whole number of steps, at least 1, or "
      "null\n"
      "run.yaml:6: folder: found null; expected a text\n"
      "command line: resume: found 'newest'; expected latest or best, or null\n"
      "10 errors in the configuration; `adtrain validate --explain` lists every key and what it may be");
}

TEST(Binder, CountsASingleErrorAsOne) {
  const ConfigTree tree;
  tree.write("run.yaml", "steps: 0\n");
  EXPECT_THAT(complaint(), HasSubstr("\n1 error in the configuration"));
}

TEST(Binder, AnOverriddenFaultIsNoFault) {
  const ConfigTree tree;
  tree.write("base.yaml", "steps: never\nclip: never\n");
  tree.write("run.yaml", "include: base.yaml\nsteps: 20\nmax_norm: 2\n");
  SampleOptions options;
  EXPECT_THAT(bind(options), IsEmpty());
  EXPECT_EQ(options.steps, 20);
  EXPECT_EQ(options.clip, 2);
}

TEST(Binder, FindingsNameThePlaceOfTheKeyAtFault) {
  const ConfigTree tree;
  tree.write("run.yaml", "\nhorizon: 200\n");
  EXPECT_THAT(complaint(),
              StartsWith("run.yaml:2: horizon: found more steps than the run has; expected fewer\n1 error"));
  EXPECT_THAT(complaint({"horizon=300"}), StartsWith("command line: horizon: found more steps"));
  EXPECT_THAT(complaint({"steps=5", "horizon=1"}),
              StartsWith("rate (default value): found a rate for a longer run"));
}

TEST(Binder, FindingsFollowRefusedValuesButNeverRepeatThem) {
  const ConfigTree tree;
  tree.write("run.yaml", "rate: fast\nsteps: 5\nhorizon: 7\n");
  EXPECT_THAT(complaint(), AllOf(StartsWith("run.yaml:1: rate: found 'fast'"),
                                 HasSubstr("\nrun.yaml:3: horizon: found more"), HasSubstr("\n2 errors")));
}

TEST(Binder, FindingsAreNotAskedForWhereAFileCouldNotBeRead) {
  const ConfigTree tree;
  tree.write("run.yaml", "include: absent.yaml\nhorizon: 200\n");
  EXPECT_THAT(complaint(), AllOf(StartsWith("run.yaml:1: include: found neither"), HasSubstr("\n1 error")));
}

TEST(Binder, AliasesMeanTheSameKey) {
  const ConfigTree tree;
  tree.write("run.yaml", "max_norm: 0.5\n");
  SampleOptions options;
  EXPECT_THAT(bind(options), IsEmpty());
  EXPECT_EQ(options.clip, 0.5);
  tree.write("run.yaml", "max_norm: -1\n");
  EXPECT_THAT(complaint(),
              StartsWith("run.yaml:1: max_norm: found '-1'; expected a number, above 0, or null"));
}

TEST(Binder, TwoNamesOfOneKeyInAFileMustAgree) {
  const ConfigTree tree;
  tree.write("run.yaml", "clip: 0.5\nmax_norm: 5e-1\n");
  SampleOptions options;
  EXPECT_THAT(bind(options),
              ElementsAre("run.yaml:2: max_norm: means the same as clip (run.yaml:1); one can go"));
  tree.write("run.yaml", "clip: 0.5\nmax_norm: 0.7\n");
  EXPECT_THAT(complaint(),
              StartsWith("run.yaml:2: max_norm: found '0.7', but clip, another name of the same key, is "
                         "'0.5' (run.yaml:1); expected one of them\n1 error"));
}

TEST(Binder, ReportsIgnoredAndRepeatedKeysOnce) {
  const ConfigTree tree;
  tree.write("run.yaml", "gen_interval: 1000\nsteps: 10\nsteps: 1e1\n");
  SampleOptions options;
  EXPECT_THAT(bind(options),
              ElementsAre("run.yaml:3: steps: found again with the same value as in line 2; one can go",
                          "run.yaml:1: gen_interval: ignored: there is nothing to generate"));
}

TEST(Binder, AnUnknownStrangerGetsNoSuggestion) {
  const ConfigTree tree;
  tree.write("run.yaml", "quantization_config: {load_in_8bit: true}\nzzzzzz: 1\n");
  EXPECT_THAT(
      complaint(),
      AllOf(StartsWith("run.yaml:1: quantization_config: found an unknown nested map, "
                       "{load_in_8bit: true}; expected flat `key: value` lines\n"),
            HasSubstr("\nrun.yaml:2: zzzzzz: found an unknown key; expected one of the known keys\n")));
}

TEST(Binder, RefusesSectionsThatClaimOneName) {
  int64_t member = 0;
  Section first("First"), second("Second"), third("Third");
  first.key("seed", member, "One.");
  second.key("alg_seed", member, "Two.").also_called("seed");
  third.ignore("seed", "not needed");
  EXPECT_THROW(Binder({&first, &second}), std::logic_error);
  EXPECT_THROW(Binder({&first, &third}), std::logic_error);
  EXPECT_THROW(Binder({&third, &first}), std::logic_error);
}

TEST(Binder, ResolvedYamlGroupsKeysUnderTheirTitles) {
  SampleOptions options;
  int64_t seed = 7;
  Section sample("Sample"), other("Other");
  options.declare(sample);
  other.key("seed", seed, "A seed.");
  options.folder = "yes";
  EXPECT_EQ(
      resolved_yaml({&sample, &other}),
      "# Sample\nsteps: 100\nrate: 0.0003\nmasked: false\nfolder: \"yes\"\nblock: pre_norm\nhorizon: null\n"
      "clip: null\nresume: null\n\n# Other\nseed: 7\n");
}

TEST(Binder, ResolvedYamlLoadsBackToAnEqualConfiguration) {
  const ConfigTree tree;
  std::mt19937_64 random(fresh_seed());
  const std::vector<std::string> folders = {"a b", "#1",      "x: y",  "null",       "12",
                                            "été", "'q\" \\", " lead", "two\nlines", ""};
  for (int round = 0; round < 50; ++round) {
    SampleOptions written;
    written.steps = static_cast<int64_t>(random() % 1000000) + 1;
    written.rate = std::max(1e-300, static_cast<double>(random() >> 11) * 0x1.0p-53);
    written.masked = random() % 2 == 0;
    written.folder = folders[random() % folders.size()];
    written.block = random() % 2 == 0 ? Block::kPreNorm : Block::kPostNorm;
    if (random() % 2 == 0) written.clip = static_cast<double>(random() % 1000 + 1) * 1e-9;
    if (random() % 2 == 0) written.resume = "best";
    written.steps = std::max<int64_t>(written.steps, 10);
    Section section("Sample");
    written.declare(section);
    tree.write("run.yaml", resolved_yaml({&section}));

    SampleOptions read;
    EXPECT_THAT(bind(read), IsEmpty());
    EXPECT_EQ(read.steps, written.steps);
    EXPECT_EQ(read.rate, written.rate);
    EXPECT_EQ(read.masked, written.masked);
    EXPECT_EQ(read.folder, written.folder);
    EXPECT_EQ(read.block, written.block);
    EXPECT_EQ(read.horizon, written.horizon);
    EXPECT_EQ(read.clip, written.clip);
    EXPECT_EQ(read.resume, written.resume);
  }
}

TEST(Binder, ShowsTheFirstOfManyErrorsAndCountsTheRest) {
  const ConfigTree tree;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "unknown_key_" + std::to_string(i) + ": 1\n";
  tree.write("run.yaml", text);
  const std::string errors = complaint();
  EXPECT_THAT(errors, AllOf(HasSubstr("run.yaml:1: unknown_key_0"), HasSubstr("… and 19950 more"),
                            HasSubstr("20000 errors in the configuration")));
  EXPECT_LT(std::count(errors.begin(), errors.end(), '\n'), 60);
}

TEST(Binder, ATextThatIsNotUtf8IsRefusedBeforeItIsWrittenAnywhere) {
  const ConfigTree tree;
  tree.write("run.yaml", "folder: \"a\xff\xfe\"\n");
  EXPECT_THAT(complaint(), AllOf(StartsWith("run.yaml:1: folder: found 'a"), HasSubstr("not UTF-8")));
  tree.write("run.yaml", "folder: \"a\\0b\"\n");
  EXPECT_THAT(complaint(), HasSubstr("without null bytes"));
}

TEST(Binder, AHugeValueIsShownInPart) {
  const ConfigTree tree;
  tree.write("run.yaml", "steps: " + std::string(300'000, '9') + "\n" + std::string(300'000, 'k') + ": 1\n");
  EXPECT_LT(complaint().size(), 2000U);
}

}  // namespace
}  // namespace adtrain
