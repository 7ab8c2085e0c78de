#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"
#include "data/HistoryFile.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kFile = "histories/history_darkroom_PPO_alg-seed1.hdf5";

bool has_markers(const SmallRun& small) {
  const HistoryFile file(small.folder() / kFile);
  return !file.read(0, file.steps(), file.streams(), {.grid_size = 5, .num_actions = 5})
              .compress_markers.empty();
}

TEST(Collected, MarkersAreWrittenForCompressedContextOnRequest) {
  const SmallRun small;
  const std::string compressed =
      " --set use_compressed_context=true --set compress_interval=16 --set n_transit=40";
  ASSERT_EQ(small.adtrain("collect small.yaml --set write_compress_markers=auto").exit_code, 0);
  EXPECT_FALSE(has_markers(small));
  // Training does not need them, so the file serves both kinds of models.
  EXPECT_EQ(
      small.adtrain("small.yaml --stop-after 1 --set write_compress_markers=auto" + compressed).exit_code,
      75);
  const Finished kept = small.adtrain("collect small.yaml --set write_compress_markers=auto" + compressed);
  EXPECT_EQ(kept.exit_code, 4) << kept.output;
  EXPECT_THAT(kept.output,
              AllOf(HasSubstr("collected with write_compress_markers false"), HasSubstr("--overwrite")));
  const Finished again =
      small.adtrain("collect small.yaml --overwrite --set write_compress_markers=auto" + compressed);
  ASSERT_EQ(again.exit_code, 0) << again.output;
  EXPECT_TRUE(has_markers(small));
  EXPECT_EQ(small.adtrain("collect small.yaml").exit_code, 0) << "the file holds more than is asked for";
  EXPECT_THAT(small.adtrain("validate small.yaml --set write_compress_markers=yes").output,
              HasSubstr("write_compress_markers: \"true\""));
  EXPECT_THAT(small.adtrain("validate small.yaml --set write_compress_markers=autos").output,
              AllOf(HasSubstr("expected true, false or auto"), HasSubstr("did you mean auto?")));
}

/// Read by h5py, and compared with the way along x first.
void expect_optimal_actions(const SmallRun& small) {
  small.write("check.py",
              "import h5py, zlib\n"
              "with h5py.File('" +
                  std::string(kFile) +
                  "') as file:\n"
                  "    for task, group in file.items():\n"
                  "        best, (steps, streams) = group['optimal_actions'], group['actions'].shape\n"
                  "        assert best.shape == (streams, steps) == (4, 80) and best.dtype == 'int32'\n"
                  "        assert best.attrs['crc32'] == zlib.crc32(best[()].tobytes())\n"
                  "        goal = divmod(int(task), 5)\n"
                  "        states = group['states'][()]\n"
                  "        for stream in range(streams):\n"
                  "            for step in range(steps):\n"
                  "                x, y = states[step, stream]\n"
                  "                wanted = (0 if x < goal[0] else 1 if x > goal[0] else\n"
                  "                          2 if y < goal[1] else 3 if y > goal[1] else 4)\n"
                  "                assert best[stream, step] == wanted, (task, stream, step)\n"
                  "    print('as expected')\n");
  const Finished checked =
      run_shell("cd " + quoted(small.folder().string()) + " && " + quoted(ADTRAIN_PYTHON) + " check.py");
  EXPECT_EQ(checked.output, "as expected\n");
}

TEST(Collected, OptimalActionsAreWrittenOnRequest) {
  const SmallRun small;
  const Finished collected =
      small.adtrain("collect small.yaml --set optimal_actions=true --set kept_streams=4");
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  expect_optimal_actions(small);
  const std::string settings = " --set kept_streams=4 --set train_n_stream=4";
  EXPECT_EQ(small.adtrain("small.yaml --stop-after 1" + settings).exit_code, 75) << "training ignores them";
  const Finished none = small.adtrain("collect small.yaml --overwrite" + settings);
  ASSERT_EQ(none.exit_code, 0) << none.output;
  const Finished kept = small.adtrain("collect small.yaml --set optimal_actions=true" + settings);
  EXPECT_EQ(kept.exit_code, 4);
  EXPECT_THAT(kept.output, HasSubstr("collected with optimal_actions false"));
}

TEST(Collected, OnAGpuTooSomeTasksAndTheirOptimalActions) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun small;
  const std::string settings =
      "collect small.yaml --overwrite --set device=cuda --set kept_streams=4 --set optimal_actions=true";
  ASSERT_EQ(small.adtrain(settings).exit_code, 0);
  expect_optimal_actions(small);
  const auto history_of = [&small](int64_t task) {
    const HistoryFile file(small.folder() / kFile);
    return file.read(task, file.steps(), file.streams(), {.grid_size = 5, .num_actions = 5}).actions;
  };
  const auto of_all = history_of(17);
  const Finished some = small.adtrain(settings + " --set tasks=3,17");
  ASSERT_EQ(some.exit_code, 0) << some.output;
  EXPECT_THAT(some.output, HasSubstr("2 of darkroom: 3,17"));
  expect_optimal_actions(small);
  EXPECT_EQ(HistoryFile(small.folder() / kFile).tasks().text(), "3,17");
  EXPECT_EQ(history_of(17), of_all) << "a task's history does not depend on the others";
}

TEST(Collected, ASourceThatDivergesIsNotRecorded) {
  const SmallRun small;
  const Finished collected = small.adtrain("collect small.yaml --overwrite --set source_lr=1e30");
  EXPECT_EQ(collected.exit_code, 6) << collected.output;
  EXPECT_THAT(collected.output, AllOf(HasSubstr("task "), HasSubstr("lower source_lr, which is 1e+30")));
  EXPECT_FALSE(std::filesystem::exists(small.folder() / kFile));
}

TEST(Collected, TheAlgorithmIsAName) {
  const SmallRun small;
  const Finished collected = small.adtrain("collect small.yaml --set alg=QL");
  ASSERT_EQ(collected.exit_code, 0) << collected.output;
  EXPECT_THAT(collected.output,
              HasSubstr("alg: QL is a name, also of the history file; adtrain collect runs PPO"));
  const Finished trained = small.adtrain("small.yaml --stop-after 1 --set alg=QL");
  EXPECT_EQ(trained.exit_code, 75) << trained.output;
  EXPECT_THAT(small.read("runs/small/config.yaml"), HasSubstr("alg: QL\n"));
  EXPECT_EQ(small.adtrain("small.yaml --set run_name=ppo").exit_code, 4)
      << "there is no history of that name";
  EXPECT_THAT(small.adtrain("validate small.yaml").output, Not(HasSubstr("is a name")));
}

}  // namespace
}  // namespace adtrain
