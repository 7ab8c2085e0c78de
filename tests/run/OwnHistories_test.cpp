#include "run/own/OwnHistories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kList = R"(Ant: {path: mujoco/ant_v4, group: mujoco, type: default, reward_scale: 0.25}
Door: {path: metaworld/door-v2, group: metaworld, type: test, reward_scale: 2, expert_score: 7}
Reach: {path: metaworld/reach-v2, group: metaworld, type: default}
Push: {path: metaworld/push-v2, group: metaworld, type: test, reward_scale: 3}
Bin: {path: metaworld/bin-v2, group: elsewhere, type: test}
)";

class OwnHistoriesTest : public testing::Test {
 protected:
  OwnHistoriesTest() { write_file(folder_.path() / "list.yaml", kList); }
  OwnHistories open(const std::string& histories, const std::string& more = "") {
    write_file(
        folder_.path() / "own.yaml",
        fmt::format("env: mine\nhistories: {}\ntraj_dir: {}\ntransformer_block: vintix\ntf_n_embd: 16\n"
                    "tf_n_head: 2\nn_transit: 4\n{}",
                    histories, vintix().string(), more));
    std::vector<std::string> notices;
    return OwnHistories(RunConfig::load(folder_.path() / "own.yaml", {}, notices));
  }
  std::string complaint(const std::string& histories, const std::string& more = "") {
    try {
      open(histories, more);
    } catch (const Error& error) {
      return error.what();
    }
    return "no complaint";
  }
  std::string list() const { return (folder_.path() / "list.yaml").string(); }
  static const fs::path& vintix() { return WrittenHistories::get("vintix").path; }

  static std::vector<std::string> names(const OwnHistories& histories, const std::vector<size_t>& tasks) {
    std::vector<std::string> names;
    for (const size_t task : tasks) names.push_back(histories.source().tasks()[task].name);
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(OwnHistoriesTest, AListSaysWhichTasksAreTrainedOnAndHeldOut) {
  const OwnHistories histories = open(list());
  EXPECT_THAT(names(histories, histories.trained()), testing::UnorderedElementsAre("Ant", "Reach"));
  EXPECT_THAT(names(histories, histories.held_out()), ElementsAre("Push"));
  ASSERT_EQ(histories.spaces().size(), 2U);
  EXPECT_EQ(histories.spaces()[0].group, "mujoco");
  EXPECT_EQ(histories.spaces()[1].group, "metaworld");
  ASSERT_EQ(histories.unrecorded().size(), 1U) << "of elsewhere nothing is trained on";
  EXPECT_EQ(histories.unrecorded().front().task.name, "Door");
  EXPECT_EQ(histories.unrecorded().front().group, "metaworld");
  EXPECT_THAT(histories.notice(), HasSubstr("1 held-out task has no histories here"));

  const OwnHistories named = open(list(), "train_tasks: 2\n");  // by their places in the list
  EXPECT_THAT(names(named, named.trained()), ElementsAre("Push"));
  EXPECT_THAT(names(named, named.held_out()), ElementsAre("Reach"));
  const OwnHistories chosen = open(list(), "history_group: mujoco\n");
  EXPECT_THAT(names(chosen, chosen.trained()), ElementsAre("Ant"));
  EXPECT_THAT(chosen.held_out(), IsEmpty());
  EXPECT_THAT(chosen.unrecorded(), IsEmpty());
}

TEST_F(OwnHistoriesTest, SeveralPathsAreOneDataSet) {
  const std::string ant = (vintix() / "mujoco" / "ant_v4").string(),
                    metaworld = (vintix() / "metaworld").string();
  const OwnHistories histories = open(fmt::format("[{}, '{}/*']", ant, metaworld), "train_tasks: 0,2\n");
  EXPECT_THAT(names(histories, histories.trained()), testing::UnorderedElementsAre("ant_v4", "reach-v2"));
  EXPECT_THAT(names(histories, histories.held_out()), ElementsAre("push-v2"))
      << "of a group that is trained on";
  EXPECT_EQ(histories.number_of(1), 1);
  EXPECT_THAT(histories.name(), HasSubstr("(3 paths)"));
  EXPECT_THAT(complaint(fmt::format("[{}, {}]", ant, vintix().string())),
              AllOf(HasSubstr("own.yaml:2: histories: "), HasSubstr("both have a task 'ant_v4'")))
      << "in groups without a name and of one";

  const std::string identity = histories.identity();
  const OwnHistories again = open(fmt::format("{},{}/push-v2,{}/reach-v2", ant, metaworld, metaworld));
  EXPECT_EQ(again.identity(), identity) << "however they are named";
  EXPECT_NE(open(fmt::format("{}/push-v2,{},{}/reach-v2", metaworld, ant, metaworld)).identity(), identity)
      << "order decides the numbers of tasks";
  fs::copy(vintix(), folder_.path() / "copy", fs::copy_options::recursive);
  const std::string copy = (folder_.path() / "copy").string();
  EXPECT_EQ(open(fmt::format("{}/mujoco/ant_v4,{}/metaworld/*", copy, copy)).identity(), identity)
      << "wherever they lie";
}

TEST_F(OwnHistoriesTest, AListsIdentityIsOfWhatItSays) {
  const std::string identity = open(list()).identity();
  EXPECT_EQ(open(list()).identity(), identity);
  std::string other = kList;
  other.replace(other.find("0.25"), 4, "0.26");
  write_file(folder_.path() / "list.yaml", other);
  EXPECT_NE(open(list()).identity(), identity);
}

TEST_F(OwnHistoriesTest, ANameOnBothSidesOfTheSplitIsSaid) {
  const fs::path file = folder_.path() / "names.hdf5";
  run_python(fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f.attrs.update({{'adtrain-format': 2, 'observation-space': '{{"type": "Discrete", "n": 5}}',
                    'action-space': '{{"type": "Discrete", "n": 3}}'}})
    for task, name in enumerate(['walk', 'walk', 'run']):
        group = f.create_group(str(task))
        group.attrs['task'] = name
        for column in ('states', 'actions'):
            group[column] = np.zeros((40, 2), 'int8')
        group['rewards'] = np.zeros((40, 2))
)",
                         file.string()));
  EXPECT_THAT(open(file.string(), "train_tasks: 0,2\n").notice(),
              AllOf(HasSubstr("have the same names"), HasSubstr("refused: walk")));
  EXPECT_EQ(open(file.string(), "train_tasks: 0,1\n").notice(), "");
}

/// Numbers of twelve digits are names of groups, too, and a list of all numbers up to there has no room.
TEST_F(OwnHistoriesTest, NumbersThatNoSplitCanShuffleAreRefused) {
  const fs::path file = folder_.path() / "numbers.hdf5";
  fs::copy(WrittenHistories::get("odd0").path, file);
  run_python(fmt::format("f = h5py.File('{}', 'r+')\nf.move(sorted(f)[0], '999999999999')\n", file.string()));
  EXPECT_THAT(complaint(file.string()),
              AllOf(HasSubstr("numbers.hdf5: group 999999999999 ("), HasSubstr("has the largest number"),
                    HasSubstr("expected numbers up to 99999999")));
}

/// The digest of one path is what earlier programs wrote into checkpoints.
TEST_F(OwnHistoriesTest, OnePathsIdentityStaysWhatItWas) {
  fs::path file;
  for (const auto& entry : fs::directory_iterator(ADTRAIN_SOURCE_DIR "/data")) {
    if (entry.path().extension() == ".hdf5") file = entry.path();
  }
  EXPECT_EQ(open(file.string()).identity(), "069091dba75c841f");
}

}  // namespace
}  // namespace adtrain
