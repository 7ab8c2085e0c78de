#include "data/HistoryFile.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "base/Error.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySamples.h"
#include "data/formats/WrittenHistories.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr HistoryBounds kBounds{.grid_size = 9, .num_actions = 5};

/// A file of two tasks, 12 steps × 4 streams, which tests spoil with HDF5's own means.
class SampleFile {
 public:
  SampleFile() {
    HistoryFileWriter writer(path, NumberRanges::below(2), {});
    for (int64_t task = 0; task < 2; ++task) writer.write(task, tasks[static_cast<size_t>(task)]);
    writer.finish();
  }

  void remove(const char* name) const {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, name, H5P_DEFAULT);
    H5Fclose(file);
  }

  void rename(const char* name, const char* to) const {
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(H5Lmove(file, name, file, to, H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
  }

  /// Puts another data set where `name` was.
  template <class Value>
  void replace(const char* name, std::vector<hsize_t> shape, hid_t type,
               const std::vector<Value>& values) const {
    remove(name);
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
  }

  History read(int64_t task = 1, int64_t steps = 12, int64_t streams = 4) const {
    return HistoryFile(path).read(task, steps, streams, kBounds);
  }
  /// What reading task 1 complains about.
  std::string complaint() const {
    try {
      read();
    } catch (const DataError& error) {
      return error.what();
    }
    return "no complaint";
  }

 private:
  TemporaryFolder folder_;

 public:
  const std::filesystem::path path = folder_.path() / "history.hdf5";
  const std::vector<History> tasks = {random_history(12, 4, 6, 1), random_history(12, 4, 6, 2)};
};

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  return {values.begin(), values.end()};
}

TEST(HistoryFile, GivesBackWhatWasWritten) {
  const SampleFile file;
  const HistoryFile reader(file.path);
  EXPECT_EQ(reader.tasks().count(), 2);
  EXPECT_EQ(reader.steps(), 12);
  EXPECT_EQ(reader.streams(), 4);
  for (int64_t task = 0; task < 2; ++task) {
    const History read = file.read(task);
    const History& written = file.tasks[static_cast<size_t>(task)];
    EXPECT_EQ(read.states, written.states);
    EXPECT_EQ(read.actions, written.actions);
    EXPECT_EQ(read.rewards, written.rewards);
    EXPECT_EQ(read.next_states, written.next_states);
    EXPECT_EQ(read.dones, written.dones);
    EXPECT_TRUE(read.compress_markers.empty());
  }
}

TEST(HistoryFile, ReadsTheFirstStepsOfTheFirstStreams) {
  const SampleFile file;
  const History part = file.read(0, 7, 3);
  const History& whole = file.tasks[0];
  ASSERT_EQ(part.actions.size(), 21);
  for (int64_t step = 0; step < 7; ++step) {
    for (int64_t stream = 0; stream < 3; ++stream) {
      const size_t from = whole.at(step, stream), to = part.at(step, stream);
      EXPECT_EQ(part.actions[to], whole.actions[from]);
      EXPECT_EQ(part.next_states[2 * to + 1], whole.next_states[2 * from + 1]);
      EXPECT_EQ(part.dones[to], whole.dones[from]);
    }
  }
}

TEST(HistoryFile, ReadsEveryWidthThatNumpyMayHaveWritten) {
  const SampleFile file;
  const History& task = file.tasks[1];
  file.replace("1/states", {12, 4, 2}, H5T_NATIVE_UINT8, converted<uint8_t>(task.states));
  file.replace("1/next_states", {12, 4, 2}, H5T_NATIVE_INT16, converted<int16_t>(task.next_states));
  file.replace("1/actions", {12, 4}, H5T_NATIVE_INT64, converted<int64_t>(task.actions));
  file.replace("1/rewards", {12, 4}, H5T_NATIVE_DOUBLE, converted<double>(task.rewards));
  file.replace("1/dones", {12, 4}, H5T_NATIVE_INT32, converted<int32_t>(task.dones));
  file.replace("1/compress_markers", {12, 4}, H5T_NATIVE_INT32, std::vector<int32_t>(48, 2));
  const History read = file.read();
  EXPECT_EQ(read.states, task.states);
  EXPECT_EQ(read.next_states, task.next_states);
  EXPECT_EQ(read.actions, task.actions);
  EXPECT_EQ(read.rewards, task.rewards);
  EXPECT_EQ(read.dones, task.dones);
  EXPECT_EQ(read.compress_markers, std::vector<int32_t>(48, 2));
}

TEST(HistoryFile, NamesTheDataSetTheIndexAndTheBoundsOfAWrongValue) {
  {
    const SampleFile file;
    std::vector<int32_t> states = file.tasks[1].states;
    states[file.tasks[1].at(3, 2) * 2 + 1] = 9;
    file.replace("1/states", {12, 4, 2}, H5T_NATIVE_INT32, states);
    EXPECT_THAT(file.complaint(), AllOf(HasSubstr("history.hdf5"), HasSubstr("1/states holds 9 at (3, 2, 1)"),
                                        HasSubstr("0 … 8")));
    EXPECT_NO_THROW(file.read(1, 3, 4)) << "what is not asked for may be anything";
  }
  {
    const SampleFile file;
    std::vector<int64_t> actions(48);
    actions[5] = int64_t{1} << 40;
    file.replace("1/actions", {12, 4}, H5T_NATIVE_INT64, actions);
    EXPECT_THAT(file.complaint(),
                AllOf(HasSubstr("1/actions holds"), HasSubstr("(1, 1)"), HasSubstr("0 … 4")));
  }
  {
    const SampleFile file;
    std::vector<float> rewards(48);
    rewards[47] = std::numeric_limits<float>::quiet_NaN();
    file.replace("1/rewards", {12, 4}, H5T_NATIVE_FLOAT, rewards);
    EXPECT_THAT(file.complaint(), AllOf(HasSubstr("1/rewards holds nan at (11, 3)"), HasSubstr("finite")));
  }
}

TEST(HistoryFile, NamesTheDataSetThatIsMissingMisshapenOrOfAWrongType) {
  {
    const SampleFile file;
    file.remove("1/dones");
    EXPECT_THAT(file.complaint(),
                AllOf(HasSubstr("history.hdf5: data set 1/dones is missing"), HasSubstr("expected")));
  }
  {
    const SampleFile file;
    file.replace("1/rewards", {4, 12}, H5T_NATIVE_INT32, std::vector<int32_t>(48));
    EXPECT_THAT(file.complaint(), HasSubstr("1/rewards has shape (4, 12); expected (12, 4)"));
  }
  {
    const SampleFile file;
    file.replace("1/actions", {12, 4}, H5T_NATIVE_FLOAT, std::vector<float>(48));
    EXPECT_THAT(file.complaint(), HasSubstr("1/actions does not hold whole numbers"));
  }
  {
    const SampleFile file;
    file.remove("0");
    file.rename("1", "task_1");
    EXPECT_THAT(file.complaint(), AllOf(HasSubstr("history.hdf5: found no task, but 'task_1'"),
                                        HasSubstr("expected one group a task, named by its number")));
    file.remove("task_1");
    EXPECT_THAT(file.complaint(), HasSubstr("found no group; expected"));
  }
}

TEST(HistoryFile, MayHoldAnyTasksAndMoreThanTasks) {
  const SampleFile file;
  file.rename("0", "38");
  EXPECT_EQ(HistoryFile(file.path).tasks().text(), "1,38");
  EXPECT_EQ(file.read(38).actions, file.tasks[0].actions);
  EXPECT_EQ(file.read(1).actions, file.tasks[1].actions);
  try {
    file.read(0);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("of the tasks 1,38"), HasSubstr("of task 0")));
  }
  std::string name = "38";
  for (const char* other : {"notes", "007", "-1", "1-2"}) {
    file.rename(name.c_str(), other);
    name = other;
    EXPECT_EQ(HistoryFile(file.path).tasks().text(), "1") << other << " is no task";
  }
}

/// The settings that a file has after h5py has set these attributes.
HistorySettings settings_after(const std::string& attributes) {
  const SampleFile file;
  run_python(fmt::format("h5py.File('{}', 'r+').attrs.update({})\n", file.path.string(), attributes));
  return HistoryFile(file.path).settings();
}

TEST(HistoryFile, SettingsMayBeTextsOfAnyLengthAndNumbers) {
  const HistorySettings found = settings_after(
      "{'env': 'darkroom', 'alg': np.bytes_('PPO'), 'grid_size': 9, 'horizon': np.uint16(20), 'gamma': 0.99, "
      "'clip_range': np.float32(0.2), 'gae_lambda': 1.0, 'terminal_next_states': True, 'n_steps': [80], "
      "'author': 'Zoë'}");
  EXPECT_EQ(found.at("env"), "darkroom") << "h5py writes a text of variable length";
  EXPECT_EQ(found.at("alg"), "PPO");
  EXPECT_EQ(found.at("grid_size"), "9");
  EXPECT_EQ(found.at("horizon"), "20");
  EXPECT_EQ(found.at("gamma"), "0.99");
  EXPECT_EQ(found.at("clip_range"), "0.2");
  EXPECT_EQ(found.at("gae_lambda"), fmt::format("{}", 1.0)) << "as a configuration's are written";
  EXPECT_EQ(found.at("terminal_next_states"), "true");
  EXPECT_EQ(found.at("n_steps"), "80");
  EXPECT_EQ(found.at("author"), "Zoë");
}

TEST(HistoryFile, ASettingThatIsNoSingleValueIsNamed) {
  const auto complaint = [](const std::string& attributes) -> std::string {
    try {
      settings_after(attributes);
    } catch (const DataError& error) {
      return error.what();
    }
    return "no complaint";
  };
  EXPECT_THAT(complaint("{'horizon': [20, 30]}"),
              AllOf(HasSubstr("history.hdf5: attribute horizon holds 2 values: integers of 8 bytes"),
                    HasSubstr("expected what the histories were collected with, as one text or one number")));
  EXPECT_THAT(complaint("{'gamma': 1j}"), HasSubstr("attribute gamma holds 1 value: compounds of 16 bytes"));
  EXPECT_EQ(complaint("{'notes': [1, 2]}"), "no complaint") << "it is no setting";
}

TEST(HistoryFile, SaysWhereMoreIsAskedForThanThereIs) {
  const SampleFile file;
  EXPECT_THROW(file.read(2), DataError);
  EXPECT_THROW(file.read(0, 12, 5), DataError);
  try {
    file.read(0, 1000, 4);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("12 steps"), HasSubstr("1000 steps"), HasSubstr("train_source_timesteps")));
  }
}

TEST(HistoryFile, ACutMissingOrForeignFileIsADataError) {
  const SampleFile file;
  std::filesystem::resize_file(file.path, std::filesystem::file_size(file.path) / 2);
  EXPECT_THAT(file.complaint(), AllOf(HasSubstr("history.hdf5"), HasSubstr("truncated file")));
  std::ofstream(file.path) << "no HDF5";
  EXPECT_THAT(file.complaint(), AllOf(HasSubstr("not a readable HDF5 file"), HasSubstr("7 bytes")));
  std::filesystem::remove(file.path);
  EXPECT_THAT(file.complaint(), AllOf(HasSubstr("no such file"), HasSubstr("adtrain collect")));
  std::filesystem::create_directory(file.path);
  std::ofstream(file.path / "inner.h5") << "in it";
  EXPECT_THAT(file.complaint(), AllOf(HasSubstr("history.hdf5: a folder; expected a file"),
                                      HasSubstr("inner.h5"), Not(HasSubstr("no such file"))));
}

}  // namespace
}  // namespace adtrain
