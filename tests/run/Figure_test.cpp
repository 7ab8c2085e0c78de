#include "run/figures/Figure.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WrittenRuns.h"
#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// What an error of `Error`'s family says; empty where there is none.
std::string error_of(const std::vector<RecordedRun>& runs, const FigureContent& content) {
  try {
    Figure::of(runs, content);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Figure, ALineIsTheMeanOfItsSeedsBetweenOracleAndRandom) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "seed: 1\nlr: 0.003\n"),
                                         written.add("b", "seed: 2\nlr: 0.003\n"),
                                         written.add("c", "seed: 1\nlr: 0.001\n")};
  written.evaluation("a", {1, 5});
  written.evaluation("b", {3, 9});
  written.evaluation("c", {1, 2});
  const Figure figure = Figure::of(runs, {});
  ASSERT_EQ(figure.lines.size(), 2U);
  EXPECT_EQ(figure.legend_of(figure.lines[0]), "lr 0.003 (n = 2)");
  EXPECT_EQ(figure.legend_of(figure.lines[1]), "lr 0.001 (n = 1)");
  EXPECT_THAT(figure.lines[0].x, ElementsAre(1, 2));
  EXPECT_EQ(figure.lines[0].y[1].mean, 7);
  EXPECT_DOUBLE_EQ(figure.lines[0].y[1].low, 5);
  EXPECT_DOUBLE_EQ(figure.lines[0].y[1].high, 9);
  EXPECT_THAT(figure.notices, IsEmpty());

  const Chart chart = figure.chart();
  ASSERT_EQ(chart.references.size(), 2U);
  EXPECT_EQ(chart.references[0].y, 17);
  EXPECT_THAT(chart.series[0].band.high, ElementsAre(3, 9));
  EXPECT_TRUE(chart.series[1].band.empty()) << "one run has no band";
  EXPECT_EQ(figure.json()["groups"][0]["mean"], (std::vector<double>{2, 7}));
  EXPECT_THAT(figure.csv(), HasSubstr("\"lr 0.003\",2,2,7,5,9\n"));
}

TEST(Figure, SaysWhatItDidWithRunsThatDoNotMatch) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "seed: 1\n"), written.add("b", "seed: 1\n")};
  written.evaluation("a", {1, 2, 3}, /*oracle=*/17);
  written.evaluation("b", {1, 2}, /*oracle=*/16, /*repeats=*/4);
  const Figure figure = Figure::of(runs, {});
  EXPECT_THAT(figure.lines[0].x, ElementsAre(1, 2));
  EXPECT_THAT(figure.references, IsEmpty());
  EXPECT_THAT(figure.notices,
              ElementsAre(HasSubstr("they differ in repeats"), HasSubstr("oracle and random are not drawn"),
                          AllOf(HasSubstr("common part"), HasSubstr("2 points (1 to 2)"), HasSubstr("3, 2")),
                          HasSubstr("equal seeds")));
}

TEST(Figure, DrawsFiguresOfTrainingOverSteps) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "seed: 1\n"), written.add("b", "seed: 2\n")};
  written.metrics("a",
                  "{\"step\":10,\"loss\":4.0}\n{\"step\":10,\"test_loss\":5}\n{\"step\":20,\"loss\":2.0}\n");
  written.metrics(
      "b", "{\"step\":10,\"loss\":2.0}\n{\"step\":20,\"loss\":null,\"non_finite\":{\"loss\":\"nan\"}}\n");
  FigureContent content;
  content.what = "loss";
  const Figure figure = Figure::of(runs, content);
  EXPECT_EQ(figure.lines[0].y[0].mean, 3);
  EXPECT_TRUE(std::isnan(figure.lines[0].y[1].mean));
  EXPECT_EQ(figure.legend_of(figure.lines[0]), "mean and standard error over runs, n = 2");

  content.each = true;
  EXPECT_EQ(Figure::of(runs, content).lines.size(), 2U);
  content.what = "los";
  EXPECT_THAT(error_of(runs, content), AllOf(HasSubstr("no figure 'los'"), HasSubstr("did you mean loss?"),
                                             HasSubstr("returns, loss")));
}

TEST(Figure, TheNewestEvaluationIsDrawnAndThoseOfAnEarlierAdtrainAreKnown) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "seed: 1\n")};
  const auto drawn = [&](const std::string& evaluation) {
    FigureContent content;
    content.evaluation = evaluation;
    const Figure figure = Figure::of(runs, content);
    EXPECT_EQ(figure.evaluations.size(), 1U);
    return figure.evaluations.front() + " " + std::to_string(static_cast<int>(figure.lines[0].y[0].mean));
  };
  const std::filesystem::path a = written.path() / "a";
  WrittenRuns::evaluation_in(a / "evaluation-train-step-9-1x5", {1});
  EXPECT_EQ(drawn("latest"), "evaluation-train-step-9-1x5 1") << "there is no other";
  WrittenRuns::evaluation_in(a / "evaluation", {2});
  EXPECT_EQ(drawn("latest"), "evaluation 2");
  WrittenRuns::evaluation_in(a / "evaluation" / "test-step-8", {3});
  WrittenRuns::evaluation_in(a / "evaluation" / "test-step-8-worker-incomplete", {5});  // is no finished one
  written.evaluation("a", {4});
  EXPECT_EQ(drawn("latest"), "test-step-9 4");
  EXPECT_EQ(drawn("test-step-8"), "test-step-8 3");
  EXPECT_EQ(drawn("evaluation"), "evaluation 2");
  EXPECT_THAT(runs[0].evaluations(),
              ElementsAre("evaluation", "evaluation-train-step-9-1x5", "test-step-8", "test-step-9"));

  // As in a copy without links.
  std::filesystem::remove(a / "evaluation" / "latest");
  std::filesystem::remove(a / "evaluation" / "summary.json");
  EXPECT_THAT(error_of(runs, {}),
              AllOf(HasSubstr("known to be the newest"), HasSubstr("test-step-8, test-step-9")));
}

TEST(Figure, NamesTheRunThatLacksWhatIsAskedFor) {
  const WrittenRuns written;
  const std::vector<RecordedRun> runs = {written.add("a", "seed: 1\n")};
  EXPECT_THAT(error_of(runs, {}), HasSubstr("adtrain evaluate " + runs[0].name));
  FigureContent content;
  content.what = "loss";
  EXPECT_THAT(error_of(runs, content), HasSubstr("no metrics.jsonl"));
  written.evaluation("a", {1});
  content = {};
  content.evaluation = "test-step-9-1x5";
  EXPECT_THAT(error_of(runs, content), AllOf(HasSubstr("no evaluation 'test-step-9-1x5'"),
                                             HasSubstr("--evaluation what it has: test-step-9")));
  write_file_atomically(written.path() / "a" / "evaluation" / "test-step-9" / "summary.json", "{");
  EXPECT_THAT(error_of(runs, {}), HasSubstr("summary.json"));
  EXPECT_THROW(written.open("nowhere"), ConfigError);
}

}  // namespace
}  // namespace adtrain
