#include "evaluation/EvaluationOptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evaluation/scoring/ScoringOptions.h"

namespace adtrain {
namespace {

Key& key(Section& section, const std::string& name) {
  for (Key& candidate : section.keys()) {
    if (candidate.name() == name) return candidate;
  }
  throw std::out_of_range(name);
}

TEST(EvaluationOptions, EveryKeyReachesItsMember) {
  EvaluationOptions options;
  Section section("evaluation");
  options.declare(section);
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"eval_episodes", "500"},    {"eval_repeats", "3"},
      {"eval_tasks", "all"},       {"eval_task_limit", "16"},
      {"eval_batch", "7"},         {"eval_seed", "11"},
      {"eval_sampling", "greedy"}, {"eval_terminal_observation", "true"},
      {"eval_context", "rolling"}, {"eval_scores", "scores.yaml"},
      {"eval_protocol", "vintix"}, {"torch_dtype", "bf16"},
      {"eval_temperature", "0.5"}, {"eval_forget_unrewarded", "2"},
      {"planning_horizon", "9"},   {"beam_k", "6"},
      {"beam_draws", "2"}};
  ASSERT_EQ(section.keys().size(), lines.size());
  for (const auto& [name, value] : lines) {
    EXPECT_EQ(key(section, name).assign(value, false), std::nullopt) << name;
    EXPECT_EQ(key(section, name).value_text(), value);
  }
  EXPECT_EQ(options.eval_episodes, 500);
  EXPECT_EQ(options.eval_repeats, 3);
  EXPECT_EQ(options.eval_tasks, "all");
  EXPECT_EQ(options.eval_task_limit, 16);
  EXPECT_EQ(options.eval_batch, 7);
  EXPECT_EQ(options.eval_seed, 11);
  EXPECT_EQ(options.eval_sampling, Sampling::kGreedy);
  EXPECT_TRUE(options.eval_terminal_observation);
  EXPECT_EQ(options.eval_temperature, 0.5);
  EXPECT_EQ(options.eval_forget_unrewarded, 2);
  EXPECT_EQ(options.planning_horizon, 9);
  EXPECT_EQ(options.beam_k, 6);
  EXPECT_EQ(options.beam_draws, 2);
  EXPECT_EQ(options.eval_context, EvaluationContext::kRolling);
  EXPECT_EQ(options.eval_scores, "scores.yaml");
  EXPECT_EQ(options.eval_protocol, EvaluationProtocol::kVintix);
  EXPECT_EQ(options.chosen_type(), at::kBFloat16);
}

TEST(EvaluationOptions, NothingCanBeEvaluatedLessThanOnce) {
  EvaluationOptions options;
  Section section("evaluation");
  options.declare(section);
  for (const char* name : {"eval_episodes", "eval_repeats", "eval_batch"}) {
    EXPECT_THAT(key(section, name).assign("0", false), testing::Optional(testing::HasSubstr("at least 1")))
        << name;
  }
}

TEST(EvaluationOptions, TasksAreASideOfTheSplitOrOfTheFamily) {
  const auto finding = [](const std::string& tasks) {
    EvaluationOptions options;
    options.eval_tasks = tasks;
    Findings findings;
    options.check(findings, EnvironmentOptions(), /*in_worker=*/false);
    return findings.empty() ? "" : findings.all()[0].message;
  };
  for (const char* good : {"test", "train", "all", "0", "3-9,80"}) EXPECT_EQ(finding(good), "") << good;
  EXPECT_THAT(finding("tests"), testing::HasSubstr("found 'tests'"));
  EXPECT_THAT(finding("80-81"), testing::AllOf(testing::HasSubstr("task 81"), testing::HasSubstr("0 to 80")));
}

TEST(ScoringOptions, TasksAreASideOfTheSplitOrNumbers) {
  EnvironmentOptions family, own;
  own.env = "rooms";
  const auto finding = [](const std::string& tasks, const EnvironmentOptions& environment) {
    ScoringOptions options;
    options.score_tasks = tasks;
    Findings findings;
    options.check(findings, environment);
    return findings.empty() ? "" : findings.all()[0].message;
  };
  for (const EnvironmentOptions& environment : {family, own}) {
    for (const char* good : {"test", "train", "all", "0", "3-9,80"})
      EXPECT_EQ(finding(good, environment), "") << good;
    EXPECT_THAT(finding("tests", environment),
                testing::AllOf(testing::HasSubstr("found 'tests'; expected test, train, all, or numbers"),
                               testing::HasSubstr("did you mean test?")));
  }
  EXPECT_THAT(finding("80-81", family),
              testing::AllOf(testing::HasSubstr("task 81"), testing::HasSubstr("0 to 80")));
}

TEST(EvaluationOptions, GreedyRepeatsAreRefusedBecauseTheyWouldBeEqual) {
  EvaluationOptions options;
  options.eval_sampling = Sampling::kGreedy;
  Findings one;
  options.check(one, EnvironmentOptions(), /*in_worker=*/false);
  EXPECT_TRUE(one.empty());

  options.eval_repeats = 16;
  Findings many;
  options.check(many, EnvironmentOptions(), /*in_worker=*/false);
  ASSERT_EQ(many.all().size(), 1U);
  EXPECT_EQ(many.all()[0].key, "eval_repeats");
  EXPECT_THAT(many.all()[0].message, testing::AllOf(testing::HasSubstr("16"), testing::HasSubstr("greedy")));

  Findings in_worker;
  options.check(in_worker, EnvironmentOptions(), /*in_worker=*/true);
  EXPECT_TRUE(in_worker.empty()) << "its environments' seeds differ";
}

}  // namespace
}  // namespace adtrain
