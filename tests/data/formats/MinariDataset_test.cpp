#include "data/formats/MinariDataset.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/formats/HistorySource.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// What write_minari.py has written, once for all tests.
const fs::path& folder() {
  static const TemporaryFolder written;
  static const bool made = [] {
    const uint64_t seed = fresh_seed();
    const Finished python =
        run_shell(fmt::format("{} {} {} {}", quoted(ADTRAIN_PYTHON),
                              quoted(ADTRAIN_SOURCE_DIR "/tests/data/formats/write_minari.py"),
                              quoted(written.path().string()), seed));
    EXPECT_EQ(python.exit_code, 0) << python.output;
    return true;
  }();
  EXPECT_TRUE(made);
  return written.path();
}

/// A data set that was read whole.
struct Imported {
  std::string name;
  RecordedTask task;
  MinariDataset::Remarks remarks;
  int64_t heard = 0;  ///< steps that were told of
};

Imported import(const fs::path& path, int64_t most_steps = 1 << 20) {
  HistoryArrays arrays(MinariDataset::column_names(), {.format = {}, .cache_bytes = 0});
  const MinariDataset dataset(path, arrays);
  Imported imported{dataset.name(), {}, {}};
  imported.task = RecordedTask::sized(dataset.observations(), dataset.actions(), 1,
                                      std::min(most_steps, dataset.metadata().steps));
  imported.remarks = dataset.read(imported.task, 0, [&](int64_t steps) { imported.heard += steps; });
  return imported;
}

std::string complaint(const std::string& name) {
  try {
    import(folder() / name);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(MinariDataset, GivesTheValuesThatWereWritten) {
  const Imported imported = import(folder() / "good");
  std::string bytes;
  for (const Column& column : imported.task.columns) bytes.append(column.bytes.begin(), column.bytes.end());
  EXPECT_TRUE(bytes == read_file(folder() / "good" / "expected.bin"));
  EXPECT_EQ(imported.name, "test/good-v0");
  EXPECT_EQ(imported.heard, imported.task.steps);
  EXPECT_EQ(imported.remarks.unmarked_ends + imported.remarks.early_ends, 0);
}

TEST(MinariDataset, ReadsAsManyStepsAsATaskHasRoomFor) {
  const Imported whole = import(folder() / "unnamed"), part = import(folder() / "unnamed", 7);
  EXPECT_EQ(whole.name, "unnamed") << "after its folder";
  EXPECT_EQ(part.heard, 7);
  for (size_t i = 0; i < part.task.columns.size(); ++i) {
    const Column &of_part = part.task.columns[i], &of_whole = whole.task.columns[i];
    ASSERT_EQ(of_part.bytes.size(), 7 * of_part.type.row_bytes());
    EXPECT_TRUE(std::equal(of_part.bytes.begin(), of_part.bytes.end(), of_whole.bytes.begin())) << i;
  }
}

TEST(MinariDataset, IsFoundByItsFolderAndByItsFiles) {
  const fs::path data = folder() / "good" / "data";
  for (const fs::path& path : {folder() / "good", data, data / "main_data.hdf5", data / "metadata.json"})
    EXPECT_EQ(MinariDataset::folder_of(path), data) << path;
  EXPECT_EQ(MinariDataset::folder_of(folder() / "arrow"), folder() / "arrow" / "data");
  EXPECT_EQ(MinariDataset::folder_of(folder()), std::nullopt);
  EXPECT_EQ(MinariDataset::folder_of(folder() / "good" / "expected.bin"), std::nullopt);
  EXPECT_EQ(MinariDataset::folder_of("/nowhere"), std::nullopt);
}

TEST(MinariDataset, SaysWhereEpisodesEndOtherwiseThanMinariMarksThem) {
  const Imported unmarked = import(folder() / "unmarked_end");
  EXPECT_EQ(unmarked.remarks.unmarked_ends, 2);
  EXPECT_EQ(unmarked.remarks.early_ends, 0);
  const Imported early = import(folder() / "early_end");
  EXPECT_GE(early.remarks.early_ends, 1);
  EXPECT_EQ(early.remarks.first_early_end, "episode_0, step 0");
}

TEST(MinariDataset, RefusesByNameWhatIsMissingOrContradictory) {
  EXPECT_THAT(complaint("lost_episode"),
              AllOf(HasSubstr("main_data.hdf5: episode_5 is missing; found 11 episodes, expected the 12")));
  EXPECT_THAT(complaint("lost_rewards"), HasSubstr("episode_3 has no rewards"));
  EXPECT_THAT(complaint("lost_steps"), HasSubstr("steps in 12 episodes; expected"));
  EXPECT_THAT(complaint("no_totals"), HasSubstr("metadata.json: total_episodes is missing"));
  EXPECT_THAT(complaint("other_steps"), HasSubstr("episode_4: found actions of "));
  EXPECT_THAT(complaint("no_last_observation"), HasSubstr("episode_2/observations is float32 ("));
  EXPECT_THAT(complaint("other_rows"),
              HasSubstr("episode_7/observations is float32 (3, 2); expected float32 ("));
  EXPECT_THAT(complaint("other_actions"), HasSubstr("episode_6/actions is int32"));
  EXPECT_THAT(complaint("no_file"), HasSubstr("main_data.hdf5: is missing"));
  EXPECT_THAT(complaint("no_json"), HasSubstr("metadata.json: is no JSON object"));
  EXPECT_THAT(complaint("cut"), HasSubstr("cut/data/main_data.hdf5: "));
  EXPECT_THAT(complaint("nowhere"),
              HasSubstr("nowhere: is no Minari data set; expected a folder with data/main"));
}

TEST(MinariDataset, RefusesSpacesThatAreNotSupportedAndSaysWhatIs) {
  EXPECT_THAT(
      complaint("dictionary"),
      AllOf(HasSubstr("metadata.json: observation_space is of Gymnasium's type Dict, which is not supported"),
            HasSubstr("expected Discrete, MultiDiscrete or Box"), HasSubstr("FlattenObservation")));
  EXPECT_THAT(complaint("tuple"), HasSubstr("action_space is of Gymnasium's type Tuple"));
  EXPECT_THAT(complaint("no_space"), HasSubstr("action_space is missing"));
  EXPECT_THAT(complaint("real_actions"), HasSubstr("of whole numbers"));
  EXPECT_THAT(complaint("jpeg"), AllOf(HasSubstr("are JPEG images"), HasSubstr("jpeg_encoding=False")));
  EXPECT_THAT(complaint("raw_image"), "no complaint") << "numbers are numbers";
  EXPECT_THAT(complaint("arrow"),
              AllOf(HasSubstr("data_format is 'arrow'"), HasSubstr("data_format=\"hdf5\"")));
}

TEST(MinariDataset, RefusesValuesThatNoWindowMayHold) {
  EXPECT_THAT(complaint("nan"), AllOf(HasSubstr("episode_1: step 0 has nan"), HasSubstr("observations")));
  EXPECT_THAT(complaint("infinite_reward"), HasSubstr("episode_1: step 0 has 1e+60 among the rewards"));
  EXPECT_THAT(complaint("not_its_action"),
              HasSubstr("episode_8: step 0 has 6 among the actions; expected Discrete(6)"));
}

/// That this process lives is half of the test.
TEST(MinariDataset, OfADamagedFileGivesValuesOrAnErrorThatNamesIt) {
  const fs::path damaged = folder() / "damaged" / "data";
  fs::create_directories(damaged);
  fs::copy_file(folder() / "unnamed" / "data" / "metadata.json", damaged / "metadata.json");
  const std::string whole = read_file(folder() / "unnamed" / "data" / "main_data.hdf5");
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  int refused = 0;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole;
    const size_t begin =
        round % 2 == 0 ? bytes.find("TREE", random.below(static_cast<uint32_t>(bytes.size()))) : 0;
    const size_t from = begin == std::string::npos ? 0 : begin;
    for (int change = 0; change < 20; ++change) {
      const auto range =
          static_cast<uint32_t>(round % 2 == 0 ? std::min<size_t>(600, bytes.size() - from) : bytes.size());
      bytes[from + random.below(range)] = static_cast<char>(random.below(256));
    }
    write_file(damaged / "main_data.hdf5", bytes);
    try {
      import(damaged);
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged/data/main_data.hdf5"));
      ++refused;
    }
  }
  fmt::print("refused: {} of {}\n", refused, kRounds);
  EXPECT_GT(refused, kRounds / 10);
}

std::string refusal(const fs::path& path) {
  try {
    HistorySource::open(path);
  } catch (const DataError& error) {
    return error.what();
  }
  return "opened";
}

TEST(MinariDataset, IsNamedWhereHistoriesAreReadInPlace) {
  const std::string good = (folder() / "good").string();
  EXPECT_THAT(refusal(good), AllOf(HasSubstr(good + ": is a Minari data set"),
                                   HasSubstr("adtrain import histories " + good + " --out")));
  EXPECT_THAT(refusal(good + "/data/main_data.hdf5"), HasSubstr("main_data.hdf5: is a Minari data set"));
  EXPECT_THAT(refusal(folder() / "arrow"), HasSubstr("arrow: is a Minari data set"));
  EXPECT_THAT(refusal(folder()), HasSubstr(": holds Minari data sets; these are imported first"));
}

}  // namespace
}  // namespace adtrain
