#include "run/figures/RunComparison.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WrittenRuns.h"
#include "base/Error.h"
#include "base/File.h"
#include "evaluation/NpyFile.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

Snapshot snapshot_of(at::Tensor weight, at::Tensor moment) {
  Snapshot snapshot;
  snapshot.step = 10;
  snapshot.model = {{"bias", at::zeros({3})}, {"weight", std::move(weight)}};
  snapshot.optimizer = {{"exp_avg", std::move(moment)}};
  return snapshot;
}

TEST(CheckpointDifference, FindsTheFirstElementAndTheLargestDifference) {
  const at::Tensor weight = at::ones({2, 3}), moment = at::zeros({4});
  const Snapshot one = snapshot_of(weight, moment);
  EXPECT_TRUE(CheckpointDifference::between(one, snapshot_of(weight.clone(), moment.clone())).none());

  at::Tensor other_weight = weight.clone(), other_moment = moment.clone();
  other_weight[1][0] = 1.25;
  other_weight[1][2] = 0.5;
  other_moment[3] = -2;
  const auto difference = CheckpointDifference::between(one, snapshot_of(other_weight, other_moment));
  EXPECT_EQ(difference.tensors, 3);
  EXPECT_EQ(difference.different, 2);
  EXPECT_EQ(difference.first->text(), "model/weight[1, 0]: 1 and 1.25, by 0.25");
  EXPECT_EQ(difference.largest->text(), "optimizer/exp_avg[3]: 0 and -2, by 2");
}

TEST(CheckpointDifference, SeesBitsThatCompareEqualAndTensorsThatDoNotMatch) {
  const Snapshot one = snapshot_of(at::zeros({2}), at::zeros({1}));
  const auto signs = CheckpointDifference::between(one, snapshot_of(-at::zeros({2}), at::zeros({1})));
  EXPECT_EQ(signs.first->text(), "model/weight[0]: 0 and -0, by 0");
  EXPECT_FALSE(signs.largest);

  Snapshot other = snapshot_of(at::zeros({2, 1}), at::zeros({1}, at::kHalf));
  other.model.erase(other.model.begin());
  other.optimizer.push_back({"step", at::zeros({}, at::kLong)});
  EXPECT_THAT(
      CheckpointDifference::between(one, other).unlike,
      ElementsAre("only A has model/bias", "model/weight is Float [2] in A and Float [2, 1] in B",
                  "optimizer/exp_avg is Float [1] in A and Half [1] in B", "only B has optimizer/step"));
}

TEST(RunComparison, EqualRunsAreEqualWhateverTheirSpeed) {
  const WrittenRuns written;
  const RecordedRun a = written.add("a", "run_name: a\n"), b = written.add("b", "run_name: b\n");
  EXPECT_FALSE(RunComparison::between(a, b).equal()) << "there is nothing to compare";
  written.metrics("a", "{\"step\":1,\"loss\":0.1,\"steps_per_second\":3}\n");
  written.metrics("b", "{\"step\":1,\"loss\":0.1,\"steps_per_second\":9}\n");
  for (const char* name : {"a", "b"}) {
    written.evaluation(name, {1, 2});
    CheckpointStore(written.path() / name / "checkpoints", 2).save(snapshot_of(at::ones({2}), at::ones({1})));
  }
  const RunComparison comparison = RunComparison::between(a, b);
  EXPECT_TRUE(comparison.equal()) << comparison.text();
  EXPECT_THAT(comparison.text(), AllOf(HasSubstr("run_name a → b"), HasSubstr("all 3 tensors are equal"),
                                       HasSubstr("A and B are equal")));
  EXPECT_EQ(comparison.checkpoint_step, 10);
}

TEST(RunComparison, NamesTheFirstStepThatDiffersAndTheMost) {
  const WrittenRuns written;
  const RecordedRun a = written.add("a", "lr: 0.003\n"), b = written.add("b", "lr: 0.001\n");
  written.metrics("a", "{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":2.0}\n{\"step\":3,\"loss\":3.0}\n");
  written.metrics("b",
                  "{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":2.5}\n{\"step\":3,\"loss\":2.0}\n"
                  "{\"step\":4,\"loss\":2.0}\n");
  const RunComparison comparison = RunComparison::between(a, b);
  ASSERT_EQ(comparison.curves.size(), 1U);
  const CurveDifference& loss = comparison.curves[0];
  EXPECT_EQ(loss.common, 3);
  EXPECT_EQ(loss.different, 2);
  EXPECT_EQ(loss.first->x, 2);
  EXPECT_EQ(loss.first->by(), 0.5);
  EXPECT_EQ(loss.largest->x, 3);
  EXPECT_THAT(comparison.unmatched, ElementsAre("loss is of 3 steps up to 3 in A, and of 4 up to 4 in B"));
  EXPECT_THAT(comparison.text(), AllOf(HasSubstr("lr 0.003 → 0.001"), HasSubstr("are not equal")));
  EXPECT_EQ(comparison.json()["curves"][0]["first"]["at"], 2);
}

TEST(RunComparison, EvaluationsOfTheSameAreComparedWhateverTheirFoldersAreCalled) {
  const WrittenRuns written;
  const RecordedRun a = written.add("a", ""), b = written.add("b", "");
  written.evaluation("a", {1, 2});
  WrittenRuns::evaluation_in(written.path() / "b" / "evaluation", {1, 3});
  const RunComparison comparison = RunComparison::between(a, b);
  ASSERT_EQ(comparison.curves.size(), 1U);
  EXPECT_EQ(comparison.curves[0].name, "returns in test-step-9");
  EXPECT_EQ(comparison.curves[0].first->x, 2);
  EXPECT_THAT(comparison.unmatched, IsEmpty());

  written.evaluation("b", {1, 2}, /*oracle=*/17, /*repeats=*/4);
  WrittenRuns::evaluation_in(written.path() / "b" / "evaluation", {1, 3}, /*oracle=*/17, /*repeats=*/2);
  EXPECT_THAT(RunComparison::between(a, b).unmatched,
              ElementsAre(HasSubstr("test-step-9 is not of the same"),
                          HasSubstr("only B has the evaluation evaluation")));
}

/// Evaluations whose mean is the same, and a run that has them.
class ReturnsOfTwoRuns : public testing::Test {
 protected:
  ReturnsOfTwoRuns() {
    for (const char* name : {"a", "b"}) {
      written_.add(name, "");
      written_.evaluation(name, {1, 2});
    }
  }
  fs::path file(const std::string& run, const std::string& name) const {
    return written_.path() / run / "evaluation" / "test-step-9" / name;
  }
  void put(const std::string& run, const std::string& name, const at::Tensor& returns) const {
    write_file_atomically(file(run, name), npy_bytes(returns));
  }
  RunComparison compared() const { return RunComparison::between(written_.open("a"), written_.open("b")); }

  const WrittenRuns written_;
  const at::Tensor returns_ = at::tensor({0.0F, 3.0F, 2.0F, 1.0F}).view({2, 2});
};

TEST_F(ReturnsOfTwoRuns, AreComparedTaskByTask) {
  put("a", "reward_episode.npy", returns_);
  put("b", "reward_episode.npy", returns_);
  EXPECT_TRUE(compared().equal()) << compared().text();
  EXPECT_THAT(compared().text(), HasSubstr("returns by task and episode: all 1 array are equal"));

  put("b", "reward_episode.npy", returns_.flip(0));
  EXPECT_FALSE(compared().equal());
  EXPECT_THAT(compared().text(),
              AllOf(HasSubstr("returns by task and episode: 1 of 1 array differ"),
                    HasSubstr("first:   test-step-9/reward_episode.npy[0, 0]: 0 and 2, by 2")));
  EXPECT_EQ(compared().json()["returns"]["different"], 1);

  put("b", "reward_episode.npy", returns_.narrow(0, 0, 1));
  EXPECT_THAT(compared().returns.unlike,
              ElementsAre("test-step-9/reward_episode.npy is Float [2, 2] in A and Float [1, 2] in B"));
  fs::remove(file("b", "reward_episode.npy"));
  EXPECT_FALSE(compared().equal());
  EXPECT_THAT(compared().returns.unlike, ElementsAre("only A has test-step-9/reward_episode.npy"));
}

TEST_F(ReturnsOfTwoRuns, AreComparedRepeatByRepeatWhereBothHaveThem) {
  const std::string name = "reward_episode_repeats.npy";
  put("a", name, returns_.view({1, 2, 2}));
  EXPECT_TRUE(compared().equal()) << compared().text();
  put("b", name, returns_.flip(0).view({1, 2, 2}));
  EXPECT_FALSE(compared().equal());
  EXPECT_EQ(compared().returns.first->index, (std::vector<int64_t>{0, 0, 0}));
}

TEST_F(ReturnsOfTwoRuns, ADamagedFileIsNamed) {
  put("a", "reward_episode.npy", returns_);
  put("b", "reward_episode.npy", returns_);
  fs::resize_file(file("b", "reward_episode.npy"), 100);
  EXPECT_THAT(
      [&] { compared(); },
      ThrowsMessage<DataError>(
          AllOf(HasSubstr("b/evaluation/test-step-9/reward_episode.npy is damaged: it ends after 100 bytes"),
                HasSubstr("evaluate again"))));
}

TEST(RunComparison, ARunThatIsShorterIsNotEqual) {
  const WrittenRuns written;
  const RecordedRun a = written.add("a", ""), b = written.add("b", "");
  written.metrics("a", "{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":2.0}\n");
  written.metrics("b", "{\"step\":1,\"loss\":1.0}\n");
  const RunComparison comparison = RunComparison::between(a, b);
  EXPECT_EQ(comparison.curves[0].different, 0);
  EXPECT_FALSE(comparison.equal());
}

}  // namespace
}  // namespace adtrain
