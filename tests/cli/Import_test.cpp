#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Data sets of the real minari package in its own folder, written once.
const SmallRun& written() {
  static const SmallRun small;
  static const bool made = [] {
    small.write("datasets.py", read_file(ADTRAIN_SOURCE_DIR "/tests/cli/write_minari_datasets.py"));
    const Finished python = small.shell(fmt::format("{} datasets.py write 2>&1", quoted(ADTRAIN_PYTHON)));
    EXPECT_EQ(python.exit_code, 0) << python.output;
    return true;
  }();
  EXPECT_TRUE(made);
  return small;
}

/// `adtrain import histories` with Minari's folder, without progress.
Finished import(const std::string& arguments) {
  return written().shell("export MINARI_DATASETS_PATH=$PWD/minari\n$adtrain import histories " + arguments);
}

void expect_as_minari_reads_it(const std::string& arguments) {
  const Finished python =
      written().shell(fmt::format("{} datasets.py compare {} 2>&1", quoted(ADTRAIN_PYTHON), arguments));
  EXPECT_EQ(python.exit_code, 0) << python.output;
}

TEST(ImportHistories, WritesWhatMinariReads) {
  const Finished finished =
      import("pole/rising-v0,pole/other-v0 minari/pole/falling-v0 --out made/pole.hdf5 --json 2>/dev/null");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  const json report = json::parse(finished.output);
  EXPECT_EQ(report.at("description"), "version 2, one group a task, stream first");
  EXPECT_EQ(report.at("tasks"), 2);
  EXPECT_EQ(report.at("histories"), 3);
  EXPECT_EQ(report.at("groups").at(0).at("action_space").at("n"), 2);
  EXPECT_EQ(report.at("read").at("not_improving"), json({"pole/falling-v0"}));
  const auto notices = report.at("notices").get<std::vector<std::string>>();
  EXPECT_THAT(notices,
              ElementsAre(HasSubstr("steps are taken, as the histories of one task are equally long"),
                          AllOf(HasSubstr("returns do not rise from episode to episode: pole/falling-v0 ("),
                                HasSubstr("minari.DataCollector"))));
  expect_as_minari_reads_it("made/pole.hdf5 0=pole/rising-v0,pole/other-v0 1=pole/falling-v0");
  EXPECT_FALSE(std::filesystem::exists(written().folder() / "made/pole.hdf5.partial"));
}

TEST(ImportHistories, TakesSpacesOfAnyShapeAndEpisodesWithoutAnEnd) {
  const Finished finished = import("grid-v3 --out grid.hdf5 --compression 0 2>/dev/null");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(
      finished.output,
      AllOf(HasSubstr("observations: MultiDiscrete((2, 2), values 4, 3, 4, 3); actions: Box((2,), float64)"),
            HasSubstr("notice: grid-v3: in 9 episodes the last step neither terminates nor")));
  expect_as_minari_reads_it("grid.hdf5 0=grid-v3");
  const Finished again = import("grid-v3 --out grid.hdf5");
  EXPECT_EQ(again.exit_code, 4);
  EXPECT_THAT(again.output,
              HasSubstr("--out: grid.hdf5 exists already; expected a new file, or --overwrite"));
  EXPECT_EQ(import("pole/rising-v0 --out grid.hdf5 --overwrite 2>/dev/null").exit_code, 0);
  expect_as_minari_reads_it("grid.hdf5 0=pole/rising-v0");
}

TEST(ImportHistories, IsCompleteOrNotThereAndContinues) {
  const Finished python = written().shell(
      fmt::format("cp -r minari/pole/other-v0 minari/pole/mended-v0 && sed -i s/other/mended/ "
                  "minari/pole/mended-v0/data/metadata.json\n"
                  "cat > spoil.py <<'END'\n"
                  "import h5py, sys\n"
                  "with h5py.File('minari/pole/mended-v0/data/main_data.hdf5', 'r+') as file:\n"
                  "    file['episode_3/actions'][2] = int(sys.argv[1])\n"
                  "END\n"
                  "{} spoil.py 2",
                  quoted(ADTRAIN_PYTHON)));
  ASSERT_EQ(python.exit_code, 0) << python.output;
  const Finished spoilt = import("pole/rising-v0 pole/mended-v0 --out both.hdf5");
  EXPECT_EQ(spoilt.exit_code, 4);
  EXPECT_THAT(spoilt.output, HasSubstr("episode_3: step 2 has 2 among the actions; expected Discrete(2)"));
  EXPECT_FALSE(std::filesystem::exists(written().folder() / "both.hdf5"));
  ASSERT_EQ(written().shell(fmt::format("{} spoil.py 1", quoted(ADTRAIN_PYTHON))).exit_code, 0);
  const Finished mended = import("pole/rising-v0 pole/mended-v0 --out both.hdf5");
  EXPECT_EQ(mended.exit_code, 0) << mended.output;
  EXPECT_THAT(mended.output, HasSubstr("an earlier import is continued: 1 of 2 tasks were finished"));
  expect_as_minari_reads_it("both.hdf5 0=pole/rising-v0 1=pole/mended-v0");
}

TEST(ImportHistories, WrongInputEndsWithItsExitCode) {
  const auto fails = [&](const std::string& arguments, int code, const std::string& words) {
    const Finished finished = import(arguments);
    EXPECT_EQ(finished.exit_code, code) << arguments;
    EXPECT_THAT(finished.output, HasSubstr(words));
  };
  fails("", 2, "missing argument");
  fails("grid-v3", 2, "--out: missing");
  fails("grid-v3 --out . ", 4, "is a folder; expected the name of a file");
  fails("grid-v4 --out x.hdf5", 4,
        "grid-v4: found neither such a file or folder nor a data set of that name in");
  fails("pole/rising-v0 grid-v3 --out x.hdf5", 4, "grid-v3: its observation space is MultiDiscrete(");
  fails("pole/rising-v0 pole/rising-v0 --out x.hdf5", 4, "expected each data set once");
  fails("together-v0 --out x.hdf5", 4,
        "observation_space is of Gymnasium's type Dict, which is not supported");
  fails("grid-v3 --out x.hdf5 --compression 10", 2, "--compression: found 10");
  const Finished inspected = written().adtrain("inspect histories minari/pole/rising-v0");
  EXPECT_EQ(inspected.exit_code, 4);
  EXPECT_THAT(inspected.output,
              HasSubstr("adtrain import histories minari/pole/rising-v0 --out histories.hdf5"));
}

}  // namespace
}  // namespace adtrain
