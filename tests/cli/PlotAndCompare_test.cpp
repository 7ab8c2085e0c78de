#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Small runs, trained and evaluated: `seed-1` and `seed-2`, then `slow` with another learning rate.
const SmallRun& evaluated_runs() {
  static const SmallRun runs;
  static const bool made = [] {
    EXPECT_EQ(runs.collect().exit_code, 0);
    for (const std::string settings :
         {"run_name=seed-1 --set seed=1", "run_name=seed-2 --set seed=2", "run_name=slow --set lr=0.0001"}) {
      const Finished trained = runs.adtrain("small.yaml --set " + settings);
      EXPECT_EQ(trained.exit_code, 0) << trained.output;
      const std::string name = settings.substr(9, settings.find(' ') - 9);
      EXPECT_EQ(runs.adtrain("evaluate runs/" + name).exit_code, 0);
    }
    return true;
  }();
  EXPECT_TRUE(made);
  return runs;
}

TEST(PlotAndCompare, SeedsAreOneLineAndTheLegendSaysWhatDiffers) {
  const SmallRun& runs = evaluated_runs();
  const Finished finished = runs.adtrain(
      "plot runs/seed-1 runs/slow runs/seed-2 --out all.pdf --out all.svg --out all.png --out all.csv "
      "--title 'Seeds < all' --y-label 'mean return'");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output,
              AllOf(HasSubstr("mean and standard error"), HasSubstr("lr 0.003 (n = 2)"),
                    HasSubstr("  of test-step-20\n"), HasSubstr("lr 0.0001 (n = 1)"), HasSubstr("oracle")));
  EXPECT_THAT(runs.read("all.pdf"), StartsWith("%PDF-"));
  EXPECT_THAT(runs.read("all.png"), StartsWith("\x89PNG"));
  EXPECT_THAT(
      runs.read("all.svg"),
      AllOf(HasSubstr("<title>Seeds &lt; all</title>"), HasSubstr("lr 0.003 (n = 2); lr 0.0001 (n = 1)"),
            HasSubstr("mean return"), HasSubstr("fill-opacity:0.15"), HasSubstr("oracle")));
  EXPECT_THAT(runs.read("all.csv"), HasSubstr("\n\"lr 0.0001\",1,5,"));

  const auto numbers =
      nlohmann::json::parse(runs.adtrain("plot runs/seed-1 runs/seed-2 --interval bootstrap --json").output);
  const auto first = nlohmann::json::parse(runs.read("runs/seed-1/evaluation/latest/summary.json"));
  const auto second = nlohmann::json::parse(runs.read("runs/seed-2/evaluation/test-step-20/summary.json"));
  const double a = first.at("mean")[4], b = second.at("mean")[4];
  ASSERT_EQ(numbers.at("groups").size(), 1U);
  EXPECT_NEAR(numbers["groups"][0]["mean"][4], (a + b) / 2, 1e-12);
  EXPECT_NEAR(numbers["groups"][0]["low"][4], std::min(a, b), 1e-12);
  EXPECT_NEAR(numbers["groups"][0]["high"][4], std::max(a, b), 1e-12);
  EXPECT_EQ(numbers["references"]["oracle"], first.at("oracle"));
}

TEST(PlotAndCompare, TrainingCurvesAreDrawnToo) {
  const SmallRun& runs = evaluated_runs();
  const Finished loss =
      runs.adtrain("plot runs/seed-1/ runs/slow --what loss --smooth 0.6 --out loss.svg --log-y");
  ASSERT_EQ(loss.exit_code, 0) << loss.output;
  EXPECT_THAT(loss.output, HasSubstr("single runs"));
  EXPECT_THAT(runs.read("loss.svg"), AllOf(HasSubstr("training loss (nats) over optimizer step"),
                                           Not(HasSubstr("n = ")), Not(HasSubstr("oracle"))));
  const auto numbers = nlohmann::json::parse(runs.adtrain("plot runs/slow --what test_loss --json").output);
  EXPECT_EQ(numbers["groups"][0]["x"].size(), runs.metrics("slow", "test_loss").size());
}

TEST(PlotAndCompare, WhatCannotBeDrawnIsSaid) {
  const SmallRun& runs = evaluated_runs();
  const auto refused = [&](const std::string& arguments, int code, const auto& matcher) {
    const Finished finished = runs.adtrain("plot " + arguments);
    EXPECT_EQ(finished.exit_code, code) << finished.output;
    EXPECT_THAT(finished.output, matcher) << arguments;
  };
  refused("--out a.pdf", 2, HasSubstr("missing argument"));
  refused("runs/slow", 2, HasSubstr("--out is missing"));
  refused("runs/slow --out a.gif", 2, AllOf(HasSubstr("a.gif"), HasSubstr(".pdf, .svg or .png")));
  refused("runs --out a.pdf", 2, HasSubstr("runs is not a run"));
  refused("runs/slow ./runs/slow/ --out a.pdf", 2, HasSubstr("given twice"));
  refused("runs/slow --what tets_loss --out a.pdf", 2, HasSubstr("did you mean test_loss?"));
  refused("runs/slow --interval sd --out a.pdf", 2, HasSubstr("se, bootstrap or none"));
  refused("runs/slow --over sed --out a.pdf", 2, HasSubstr("did you mean seed?"));
  refused("runs/slow --width 0.1 --out a.pdf", 2, HasSubstr("--width"));
  refused("runs/slow --out /proc/none/a.pdf", 3, HasSubstr("--out"));
  runs.write("runs/plain/config.yaml", runs.read("small.yaml"));
  refused("runs/plain --out a.pdf", 4, HasSubstr("adtrain evaluate runs/plain"));
  EXPECT_FALSE(std::filesystem::exists(runs.folder() / "a.pdf"));
}

TEST(PlotAndCompare, AnEqualRunIsEqualAndAnotherIsNot) {
  const SmallRun& runs = evaluated_runs();
  ASSERT_EQ(runs.adtrain("small.yaml --set run_name=again --set seed=1").exit_code, 0);
  ASSERT_EQ(runs.adtrain("evaluate runs/again").exit_code, 0);
  const Finished equal = runs.adtrain("compare runs/seed-1 runs/again --expect-equal");
  EXPECT_EQ(equal.exit_code, 0) << equal.output;
  EXPECT_THAT(equal.output, AllOf(HasSubstr("run_name seed-1 → again"), HasSubstr("A and B are equal"),
                                  HasSubstr("loss: equal at 20 common steps")));

  const Finished other = runs.adtrain("compare runs/seed-1 runs/slow");
  EXPECT_EQ(other.exit_code, 0) << other.output;
  EXPECT_THAT(other.output,
              AllOf(HasSubstr("lr 0.003 → 0.0001"), HasSubstr("steps/s"), HasSubstr("are not equal"),
                    HasSubstr("test-step-20, last ten episodes"), HasSubstr("first:   step 1:")));
  EXPECT_EQ(runs.adtrain("compare runs/seed-1 runs/slow --expect-equal").exit_code, 3);

  const auto report = nlohmann::json::parse(runs.adtrain("compare runs/seed-1 runs/slow --json").output);
  EXPECT_EQ(report.at("equal"), false);
  EXPECT_EQ(report["checkpoint"]["step"], 20);
  EXPECT_GT(report["checkpoint"]["different"].get<int64_t>(), 0);
  EXPECT_GT(report["checkpoint"]["largest"]["by"].get<double>(), 0);
  EXPECT_EQ(report["curves"][0]["first"]["at"], 1);
}

TEST(PlotAndCompare, CompareTakesTwoRunsWhoseCheckpointsVerify) {
  const SmallRun& runs = evaluated_runs();
  EXPECT_EQ(runs.adtrain("compare runs/slow").exit_code, 2);
  EXPECT_THAT(runs.adtrain("compare runs/slow runs/nowhere").output, HasSubstr("runs/nowhere is not a run"));
  std::filesystem::copy(runs.run("slow"), runs.run("damaged"), std::filesystem::copy_options::recursive);
  write_file(runs.run("damaged") / "checkpoints" / "step-20" / "model.safetensors", "damaged");
  const Finished damaged = runs.adtrain("compare runs/slow runs/damaged");
  EXPECT_EQ(damaged.exit_code, 5) << damaged.output;
  EXPECT_THAT(damaged.output, HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace adtrain
