#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// XLand's layout with random rewards and episodes, and what NumPy makes of them; `odd.hdf5` has a task whose
/// returns fall, and values that are no numbers.
constexpr const char* kWriter = R"(
import json, h5py, numpy as np
random = np.random.default_rng()
S, T, P = 3, 2000, 50
expected = []
with h5py.File('xland.hdf5', 'w') as f:
    for task in range(5):
        g = f.create_group(str(task))
        g.attrs['env-id'], g.attrs['ruleset-id'] = 'XLand-MiniGrid-R1-9x9', 40 + task
        done = random.random((S, T)) < .04
        reward = (random.random((S, T)) * np.arange(T) * done / T).astype('f2')
        if task == 3: reward = reward[:, ::-1]
        for name, values in dict(states=np.zeros((S, T, 5, 5), 'u1'), actions=np.zeros((S, T), 'u1'),
                                 rewards=reward, dones=done).items():
            g.create_dataset(name, data=values, chunks=(1, 300, *values.shape[2:]), compression='gzip')
        parts = [[] for _ in range(P)]
        for s in range(S):
            total = 0.
            for t in range(T):
                total += float(reward[s, t])
                if done[s, t]:
                    parts[t * P // T].append(total)
                    total = 0.
        expected.append(dict(episodes=sum(map(len, parts)), curve=[np.mean(p) if p else None for p in parts],
                             first=np.mean(sum(parts[:5], [])), last=np.mean(sum(parts[-5:], []))))
json.dump(expected, open('expected.json', 'w'))
with h5py.File('odd.hdf5', 'w') as f:
    f.attrs['adtrain-format'], f.attrs['axes'] = 2, 'stream,time'
    for task in range(8):
        g = f.create_group(str(task))
        g['states'] = np.zeros((2, 200, 4), 'f4')
        g['actions'] = np.zeros((2, 200, 1), 'f4')
        g['rewards'] = np.ones((2, 200), 'f4')
        g['step_num'] = np.tile(np.arange(200) % 10, (2, 1))
    f['2/states'][1, 17, 3] = np.nan
    f['4/rewards'][0, 199] = np.inf
)";

const SmallRun& written() {
  static const SmallRun small;
  static const bool made = [] {
    small.write("write.py", kWriter);
    const Finished python = run_shell(
        fmt::format("cd {} && {} write.py", quoted(small.folder().string()), quoted(ADTRAIN_PYTHON)));
    EXPECT_EQ(python.exit_code, 0) << python.output;
    return true;
  }();
  EXPECT_TRUE(made);
  return small;
}

TEST(InspectHistories, UnboundedSpacesAreJsonToo) {
  const SmallRun small;
  small.write("write.py",
              "import h5py, json, numpy, pathlib\n"
              "folder = pathlib.Path('mujoco/hopper')\n"
              "folder.mkdir(parents=True)\n"
              "(folder / 'hopper.json').write_text(json.dumps({'task_name': 'hopper', 'observation_shape': "
              "{'proprio': [3]}, "
              "'action_dim': 2, 'action_type': 'continuous'}))\n"
              "with h5py.File(folder / 'a.h5', 'w') as file:\n"
              "    group = file.create_group('0-9')\n"
              "    group['proprio_observation'] = numpy.ones((10, 3), 'float32')\n"
              "    group['action'] = numpy.ones((10, 2), 'float32')\n"
              "    group['reward'] = numpy.ones(10, 'float32')\n"
              "    group['step_num'] = numpy.arange(10, dtype='int32') % 5\n");
  const Finished python =
      run_shell(fmt::format("cd {} && {} write.py", quoted(small.folder().string()), quoted(ADTRAIN_PYTHON)));
  ASSERT_EQ(python.exit_code, 0) << python.output;
  const Finished inspected = small.adtrain("inspect histories mujoco --json 2>/dev/null");
  const json report = json::parse(inspected.output, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(report.is_object()) << inspected.output;
  const auto& space = report.at("data_sets").at(0).at("groups").at(0).at("observation_space");
  EXPECT_EQ(space.at("low").at(0), "-Infinity");
  EXPECT_EQ(space.at("high").at(2), "Infinity");
}

TEST(InspectHistories, FindsTheReturnsThatNumPyFinds) {
  const SmallRun& small = written();
  const auto report = json::parse(small.adtrain("inspect histories xland.hdf5 --json 2>/dev/null").output);
  const auto& set = report.at("data_sets").at(0);
  EXPECT_EQ(set.at("format"), "xland");
  EXPECT_EQ(set.at("tasks"), 5);
  EXPECT_EQ(set.at("histories"), 15);
  EXPECT_EQ(set.at("steps"), 30000);
  EXPECT_EQ(set.at("groups").at(0).at("action_space").at("n"), 6);
  const auto expected = json::parse(small.read("expected.json"));
  int64_t episodes = 0;
  for (size_t task = 0; task < 5; ++task) {
    const json &found = set.at("read").at("each_task").at(task), &wanted = expected.at(task);
    EXPECT_EQ(found.at("number"), 40 + task);
    EXPECT_EQ(found.at("episodes"), wanted.at("episodes"));
    episodes += wanted.at("episodes").get<int64_t>();
    EXPECT_NEAR(found.at("return_of_first_tenth"), wanted.at("first"), 1e-9);
    EXPECT_NEAR(found.at("return_of_last_tenth"), wanted.at("last"), 1e-9);
    ASSERT_EQ(found.at("curve").size(), 50U);
    for (size_t part = 0; part < 50; ++part) {
      if (wanted.at("curve").at(part).is_null()) continue;
      EXPECT_NEAR(found.at("curve").at(part), wanted.at("curve").at(part), 1e-9);
    }
  }
  EXPECT_EQ(set.at("read").at("episodes"), episodes);
  EXPECT_EQ(set.at("read").at("not_improving"), json({"XLand-MiniGrid-R1-9x9 ruleset 43"}));
}

TEST(InspectHistories, DrawsAndSaysWhatIsOdd) {
  const SmallRun& small = written();
  const Finished finished =
      small.adtrain("inspect histories xland.hdf5 odd.hdf5 --out learning.svg --out learning.pdf");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(
      finished.output,
      AllOf(HasSubstr("xland.hdf5: xland ("), HasSubstr("notice: 1 task does not improve: XLand"),
            HasSubstr("notice: 8 tasks do not improve: task 0; task 1; task 2; task 3; task 4; and 3 more"),
            HasSubstr("NaN or infinite values: task 2, history 1, step 17: "
                      "observations; task 4, history 0, step 199: rewards"),
            HasSubstr("actions: not described"), HasSubstr("written: learning.pdf")));
  EXPECT_THAT(small.read("learning.svg"),
              AllOf(HasSubstr("xland.hdf5: mean and standard deviation over 5 tasks"), HasSubstr("odd.hdf5"),
                    HasSubstr("share of learning")));
  EXPECT_THAT(small.read("learning.pdf"), StartsWith("%PDF-"));
}

TEST(InspectHistories, ReadsSomeTasksOfManyAndOurOwnFiles) {
  const SmallRun& small = written();
  const Finished some = small.adtrain("inspect histories xland.hdf5 --tasks 2");
  EXPECT_THAT(some.output, AllOf(HasSubstr("5 tasks, 15 histories of 2 000 steps, 30 000 steps in all"),
                                 HasSubstr("of 2 of these tasks, evenly spread")));
  const Finished ours = small.adtrain("inspect histories " ADTRAIN_SOURCE_DIR
                                      "/data/history_darkroom_PPO_alg-seed0.hdf5 --tasks 0");
  EXPECT_EQ(ours.exit_code, 0);
  EXPECT_THAT(ours.output, AllOf(HasSubstr("adtrain (version 1"), HasSubstr("of 20.0 steps on average"),
                                 Not(HasSubstr("notice"))));
}

TEST(InspectHistories, WrongInputEndsWithItsExitCode) {
  const SmallRun& small = written();
  const auto fails = [&](const std::string& arguments, int code, const std::string& words) {
    const Finished finished = small.adtrain("inspect histories " + arguments);
    EXPECT_EQ(finished.exit_code, code) << arguments;
    EXPECT_THAT(finished.output, HasSubstr(words));
  };
  fails("", 2, "missing argument");
  fails("missing.hdf5", 4, "missing.hdf5: found nothing; expected learning histories");
  fails("xland.hdf5 --format vintx", 2, "did you mean 'vintix'?");
  fails("xland.hdf5 --format adtrain", 4,
        "xland.hdf5: found xland (the attribute ruleset-id of group 0); expected");
  fails("odd.hdf5 --format xland", 4,
        "odd.hdf5: found adtrain version 2 (the attribute adtrain-format of the root)");
  fails("xland.hdf5 --tasks -1", 2, "--tasks: found -1");
  fails("xland.hdf5 --out x.gif", 2, "expected a name that ends in .svg, .pdf or .png");
  fails("xland.hdf5 --out /dev/null/x.svg", 3, "choose a folder that can be written");
}

}  // namespace
}  // namespace adtrain
