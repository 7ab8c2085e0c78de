#include "data/formats/HistorySource.h"

#include <algorithm>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

/// The place among tasks() of the task whose group or folder has that name.
size_t task_of(const HistorySource& source, const std::string& name) {
  for (size_t i = 0; i < source.tasks().size(); ++i) {
    const std::string& candidate = source.tasks()[i].name;
    if (candidate == name || candidate.ends_with(" " + name)) return i;
  }
  return std::stoul(name);
}

/// The bytes of all windows that the document lists, as the source gives them.
std::string windows_of(const HistorySource& source, const json& windows) {
  std::string bytes;
  HistoryWindow window;
  for (const json& wanted : windows) {
    source.read(task_of(source, wanted.at("task")), wanted.at("history"), wanted.at("first"),
                wanted.at("count"), ColumnKinds::all(), window);
    for (const Column& column : window.columns) bytes += text_of(column.bytes);
  }
  return bytes;
}

std::string complaint(const fs::path& path, const HistorySourceOptions& options = {}) {
  try {
    HistorySource::open(path, options);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

/// A file of our version 2 with these root attributes, as Python, and one task of 4 steps × 3 streams.
std::string version2(const fs::path& path, const std::string& attributes) {
  return fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f.attrs['adtrain-format'] = 2
    f.attrs.update({})
    g = f.create_group('5')
    g.attrs.update({{'task': 'reach-v3', 'random-score': 1.5}})
    g['states'] = np.arange(48, dtype='f4').reshape(4, 3, 4)
    g['actions'] = np.zeros((4, 3), 'u1')
    g['rewards'] = np.zeros((4, 3))
)",
                     path.string(), attributes);
}

class Windows : public testing::TestWithParam<const char*> {};

TEST_P(Windows, AreThoseThatH5pySlices) {
  const WrittenHistories& written = WrittenHistories::get(GetParam());
  for (const size_t cache : {size_t{0}, size_t{5000}, size_t{1} << 28}) {
    const auto source = HistorySource::open(written.path, {.format = {}, .cache_bytes = cache});
    EXPECT_TRUE(windows_of(*source, written.document.at("windows")) == written.bytes);
  }
}

TEST_P(Windows, AreTheSameForThreadsAtOnce) {
  const WrittenHistories& written = WrittenHistories::get(GetParam());
  const auto source = HistorySource::open(written.path, {.format = {}, .cache_bytes = 20000});
  std::vector<std::string> found(4);
  {
    std::vector<std::jthread> threads;
    for (std::string& bytes : found)
      threads.emplace_back([&] { bytes = windows_of(*source, written.document.at("windows")); });
  }
  for (const std::string& bytes : found) EXPECT_TRUE(bytes == written.bytes);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Windows, testing::Values("xland", "adtrain1", "odd0", "vintix"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(OddWindows, AreThoseThatH5pySlices) {
  for (const char* name : WrittenHistories::kOdd) {
    const WrittenHistories& written = WrittenHistories::get(name);
    SCOPED_TRACE(name);
    const auto source = HistorySource::open(written.path, {.format = {}, .cache_bytes = 3000});
    EXPECT_TRUE(windows_of(*source, written.document.at("windows")) == written.bytes);
  }
}

TEST(XlandHistories, GiveTheSamplesOfTheCollectionsLoader) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const auto source = HistorySource::open(written.path);
  std::string bytes;
  for (const json& sample : written.document.at("samples")) {
    const int64_t length = sample.at("length"), start = sample.at("start");
    const HistoryWindow window = source->window(std::stoul(sample.at("task").get<std::string>()),
                                                sample.at("history"), start - 1, length + 1);
    const auto rows = [&](ColumnKind kind, int64_t first) {
      const Column& column = *window.find(kind);
      const size_t row = column.type.row_bytes();
      bytes +=
          text_of(column.bytes).substr(static_cast<size_t>(first) * row, static_cast<size_t>(length) * row);
    };
    rows(ColumnKind::kObservations, 1);
    rows(ColumnKind::kActions, 0);
    rows(ColumnKind::kRewards, 0);
    rows(ColumnKind::kActions, 1);
  }
  EXPECT_TRUE(bytes == read_file(written.folder / "samples.bin"));
}

TEST(XlandHistories, SayWhatTheyAre) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const auto source = HistorySource::open(written.path);
  EXPECT_EQ(source->format(), HistoryFormat::kXland);
  ASSERT_EQ(source->tasks().size(), 12U);
  const TaskHistories& task = source->tasks()[10];  // by number, although '10' comes before '2' as text
  EXPECT_EQ(task.number, 1070);
  EXPECT_EQ(task.name, "XLand-MiniGrid-R1-9x9 ruleset 1070");
  EXPECT_EQ(task.attributes.at("benchmark-id"), "trivial-1m");
  EXPECT_THAT(task.steps, ElementsAre(1000, 1000, 1000));
  EXPECT_EQ(source->total_histories(), 36);
  EXPECT_EQ(source->total_steps(), 36000);
  ASSERT_EQ(source->groups().size(), 1U);
  const SpaceGroup& group = source->groups().front();
  EXPECT_EQ(group.observation->text(), "MultiDiscrete((5, 5), 156 values)");
  EXPECT_EQ(group.action->text(), "Discrete(6)");
  EXPECT_THAT(group.packed_digits, ElementsAre(13, 12));
  std::vector<std::string> columns;
  for (const ColumnType& column : group.columns)
    columns.push_back(
        fmt::format("{} {} {}", name_of(column.kind), name_of(column.type), column.row_bytes()));
  EXPECT_THAT(columns, ElementsAre("observations uint8 25", "actions uint8 1", "rewards float16 2",
                                   "episode ends bool 1", "expert actions uint8 1"));
}

TEST(AdtrainHistories, SayWhatTheyAre) {
  const WrittenHistories& written = WrittenHistories::get("adtrain1");
  const auto source = HistorySource::open(written.path);
  EXPECT_EQ(source->format(), HistoryFormat::kAdtrain);
  EXPECT_EQ(source->tasks().back().name, "task 17");
  EXPECT_EQ(source->groups().front().observation->text(), "MultiDiscrete((2,), 9 values)");
  EXPECT_EQ(source->groups().front().action->text(), "Discrete(5)");
}

/// The repository's own file, which an earlier reader reads as well.
TEST(AdtrainHistories, AreReadWhereTheyWereCollected) {
  fs::path file;
  for (const auto& entry : fs::directory_iterator(ADTRAIN_SOURCE_DIR "/data")) {
    if (entry.path().extension() == ".hdf5") file = entry.path();
  }
  ASSERT_FALSE(file.empty());
  const auto source = HistorySource::open(file);
  EXPECT_EQ(source->format(), HistoryFormat::kAdtrain);
  const HistoryWindow window = source->window(0, 0, 0, source->tasks().front().steps.front());
  EXPECT_EQ(window.find(ColumnKind::kRewards)->type.type, ElementType::kInt32);
}

TEST(HistorySource, OnlyTheColumnsAskedForAreRead) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const auto source = HistorySource::open(written.path);
  HistoryWindow window;
  source->read(0, 0, 5, 10, {ColumnKind::kRewards, ColumnKind::kStepNumbers}, window);
  ASSERT_EQ(window.columns.size(), 1U);
  EXPECT_EQ(window.columns.front().type.kind, ColumnKind::kRewards);
  EXPECT_EQ(window.columns.front().bytes.size(), 20U);
}

TEST(HistorySource, RefusesStepsThatAreNotThere) {
  const auto source = HistorySource::open(WrittenHistories::get("xland").path);
  EXPECT_EQ(source->window(0, 2, 1000, 0).steps, 0);
  EXPECT_THROW(source->window(0, 2, 990, 11), std::out_of_range);
  EXPECT_THROW(source->window(0, 3, 0, 1), std::out_of_range);
  EXPECT_THROW(source->window(12, 0, 0, 1), std::out_of_range);
}

TEST(HistorySource, SaysWhatItFoundWhereItKnowsNoFormat) {
  const TemporaryFolder folder;
  EXPECT_THAT(complaint(folder.path() / "missing"),
              AllOf(HasSubstr("missing: found nothing"), HasSubstr("an HDF5 file with a group a task")));
  write_file(folder.path() / "text.hdf5", "no histories");
  EXPECT_THAT(complaint(folder.path() / "text.hdf5"), HasSubstr("not a readable HDF5 file"));
  run_python(fmt::format("f = h5py.File('{}', 'w')\nf.create_group('episode_0')\nf.create_group('a')\n",
                         (folder.path() / "other.hdf5").string()));
  EXPECT_THAT(complaint(folder.path() / "other.hdf5"),
              HasSubstr("found an HDF5 file with 'a', 'episode_0' in its root; expected learning histories"));
  run_python(version2(folder.path() / "bare.hdf5", "{}") +
             fmt::format("h5py.File('{}', 'r+').attrs.clear()\n", (folder.path() / "bare.hdf5").string()));
  EXPECT_THAT(
      complaint(folder.path() / "bare.hdf5"),
      HasSubstr("found an HDF5 file with '5' in its root without next_states in group 5, as version 1"));
  const WrittenHistories& written = WrittenHistories::get("xland");
  EXPECT_THAT(complaint(written.path, {.format = HistoryFormat::kVintix}),
              HasSubstr("expected histories of the format vintix"));
}

TEST(AdtrainHistories, OfVersion2DescribeTheirSpaces) {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return folder.path() / name; };
  const std::string box =
      R"('{"type": "Box", "dtype": "float32", "shape": [4], "low": [-1, -1, 0, 0], "high": [1, 1, Infinity, 1]}')";
  run_python(version2(file("good"), fmt::format(R"({{'observation-space': {},
        'action-space': '{{"type": "Discrete", "n": 3}}'}})",
                                                box)) +
             version2(file("silent"), "{'axes': 'time,stream'}") +
             version2(file("axes"), "{'axes': 'step,env'}") +
             version2(file("newer"), "{'adtrain-format': 3}") +
             version2(file("contradiction"), fmt::format("{{'action-space': {}}}", box)));
  const auto source = HistorySource::open(file("good"));
  EXPECT_EQ(source->groups().front().observation->text(), "Box((4,), float32)");
  EXPECT_EQ(source->groups().front().action->text(), "Discrete(3)");
  EXPECT_EQ(source->tasks().front().name, "reach-v3");
  EXPECT_EQ(source->tasks().front().attributes.at("random-score"), "1.5");
  EXPECT_EQ(source->window(0, 2, 1, 1).find(ColumnKind::kObservations)->number(0, 3), 12 + 2 * 4 + 3);
  EXPECT_FALSE(HistorySource::open(file("silent"))->groups().front().action);
  EXPECT_THAT(complaint(file("axes")), HasSubstr("attribute axes is 'step,env'; expected 'time,stream'"));
  EXPECT_THAT(complaint(file("newer")), HasSubstr("attribute adtrain-format is 3; expected 2"));
  EXPECT_THAT(complaint(file("contradiction")),
              HasSubstr("attribute action-space says Box((4,), float32); expected the shape of the rows"));
}

/// Two groups of other spaces in one file: the first as the root says, the second as its own tasks say.
TEST(AdtrainHistories, OfVersion2HaveGroupsOfSpaces) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "groups.hdf5";
  run_python(version2(file, R"({'action-space': '{"type": "Discrete", "n": 3}'})") +
             fmt::format(R"(
with h5py.File('{}', 'r+') as f:
    f['5'].attrs['group'] = 'walkers'
    for number in 7, 8:
        g = f.create_group(str(number))
        g.attrs['group'] = np.bytes_('arms')
        g.attrs['action-space'] = '{{"type": "Box", "dtype": "float32", "shape": [2], "low": [-1], "high": [1]}}'
        g['states'] = np.full((6, 1, 2), number, 'i2')
        g['actions'] = np.zeros((6, 1, 2), 'f4')
        g['rewards'] = np.zeros((6, 1))
    f.create_group('9')
    f['9'].attrs['group'] = 'empty'
    f['9']['actions'] = np.zeros((4, 3), 'u1')
)",
                         file.string()));
  EXPECT_THAT(complaint(file), HasSubstr("group 9 has no observations"));
  run_python(fmt::format("del h5py.File('{}', 'r+')['9']\n", file.string()));
  const auto source = HistorySource::open(file);
  ASSERT_EQ(source->groups().size(), 2U);
  EXPECT_EQ(source->groups()[0].name, "walkers");
  EXPECT_EQ(source->groups()[0].action->text(), "Discrete(3)");
  EXPECT_EQ(source->groups()[1].name, "arms");
  EXPECT_EQ(source->groups()[1].action->text(), "Box((2,), float32)");
  EXPECT_EQ(source->tasks()[0].group, 0U);
  EXPECT_EQ(source->tasks()[2].group, 1U);
  EXPECT_EQ(source->window(2, 0, 3, 2).find(ColumnKind::kObservations)->number(1, 1), 8);
}

TEST(VintixHistories, SayWhatTheyAre) {
  const WrittenHistories& written = WrittenHistories::get("vintix");
  const auto source = HistorySource::open(written.path);
  EXPECT_EQ(source->format(), HistoryFormat::kVintix);
  ASSERT_EQ(source->tasks().size(), 4U);  // in order of domains, then tasks
  EXPECT_EQ(source->tasks()[0].name, "push-v2");
  EXPECT_EQ(source->tasks()[2].name, "ant_v4");
  EXPECT_EQ(source->tasks()[2].attributes.at("domain"), "mujoco");
  EXPECT_EQ(source->tasks()[2].attributes.at("reward_scale"), "0.5");
  for (const TaskHistories& task : source->tasks())
    EXPECT_EQ(json(task.steps), written.document.at("lengths").at(task.name));
  ASSERT_EQ(source->groups().size(), 3U) << "of metaworld both tasks have one group, of mujoco one each";
  EXPECT_EQ(source->tasks()[0].group, source->tasks()[1].group);
  const SpaceGroup& ant = source->groups()[source->tasks()[2].group];
  EXPECT_EQ(ant.name, "mujoco");
  EXPECT_EQ(ant.observation->text(), "Box((7,), float32)");
  EXPECT_EQ(ant.action->text(), "Box((2,), float32)");
  EXPECT_EQ(ant.find(ColumnKind::kExpertActions), nullptr);
  EXPECT_NE(source->groups()[source->tasks()[0].group].find(ColumnKind::kExpertActions), nullptr);
}

TEST(VintixHistories, OneTaskIsADataSetToo) {
  const auto source = HistorySource::open(WrittenHistories::get("vintix").path / "mujoco" / "ant_v4");
  ASSERT_EQ(source->tasks().size(), 1U);
  EXPECT_EQ(source->tasks().front().name, "ant_v4");
}

TEST(VintixHistories, NameFileAndReason) {
  const TemporaryFolder folder;
  const fs::path task = folder.path() / "ant_v4";
  const auto after = [&](const std::string& name, const std::string& text) {
    fs::remove_all(task);
    fs::copy(WrittenHistories::get("vintix").path / "mujoco" / "ant_v4", task);
    write_file(task / name, text);
    return complaint(folder.path());
  };
  EXPECT_THAT(after("ant_v4.json", "[1]"), HasSubstr("ant_v4.json: is no JSON object; expected task_name"));
  EXPECT_THAT(after("ant_v4.json", R"({"action_dim": 3})"),
              HasSubstr("its JSON says action_dim 3; expected 2"));
  EXPECT_THAT(after("ant_v4.json", R"({"observation_shape": {"proprio": [9]}})"),
              HasSubstr("its JSON says observation_shape 9; expected 7"));
  EXPECT_THAT(after("a.h5", "text"), HasSubstr("a.h5: not a readable HDF5 file"));
  EXPECT_EQ(after("notes.txt", "text"), "no complaint");
  run_python(fmt::format(R"(
with h5py.File('{}', 'w') as f:
    f['0-3/proprio_observation'], f['0-3/action'] = np.zeros((4, 7), 'f4'), np.zeros((4, 2), 'f4')
    f['0-3/reward'] = np.zeros((4, 2), 'f4')
)",
                         (task / "0.h5").string()));
  EXPECT_THAT(complaint(task),
              HasSubstr("0.h5: data set 0-3/reward has shape (4, 2); expected one number a step: (4)"));
  fs::remove(task / "0.h5");
  fs::copy_file(WrittenHistories::get("xland").path, task / "b.h5");
  EXPECT_THAT(complaint(task),
              HasSubstr("b.h5: found a group '0'; expected groups named by their first and last step"));
  fs::create_directory(folder.path() / "empty");
  EXPECT_THAT(complaint(folder.path() / "empty"), HasSubstr("found a folder without files *.h5"));
}

/// What is done to group g of a file of XLand's layout, and what is said of it.
struct Change {
  const char* python;
  const char* complaint;
};

TEST(HistorySource, NamesFileDataSetAndReason) {
  const Change changes[] = {
      {"put('states', compression='lzf')",
       "data set 3/states is compressed by filter 32000 (lzf); expected gzip"},
      {"del g['rewards']", "group 3 has no rewards"},
      {"put('rewards', dtype='f8')", "data set 3/rewards is float64 (3, 1000); expected float16 (3, 1000)"},
      {"del g['dones']; g['dones'] = [b'yes', b'no']", "data set 3/dones holds texts of "},
      {"del g['dones']; g['dones'] = h5py.ExternalLink('missing.hdf5', '/x')",
       "data set 3/dones cannot be opened"},
      {"del g['dones']; g['dones'] = h5py.ExternalLink('whole.hdf5', '/3/dones')",
       "data set 3/dones is of another file"},
  };
  const TemporaryFolder folder;
  fs::copy_file(WrittenHistories::get("xland").path, folder.path() / "whole.hdf5");
  std::string lines = R"(
def put(name, dtype=None, **options):
    values = g[name][()]
    del g[name]
    g.create_dataset(name, data=values.astype(dtype or values.dtype), **options)
)";
  std::vector<fs::path> files;
  for (const Change& change : changes) {
    files.push_back(folder.path() / fmt::format("{}.hdf5", files.size()));
    fs::copy_file(folder.path() / "whole.hdf5", files.back());
    lines += fmt::format("with h5py.File('{}', 'r+') as f:\n    g = f['3']; {}\n", files.back().string(),
                         change.python);
  }
  run_python(lines);
  for (size_t i = 0; i < files.size(); ++i) {
    const auto source = HistorySource::open(files[i]);
    source->window(2, 0, 0, 10);
    try {
      source->window(3, 0, 0, 10);
      ADD_FAILURE() << changes[i].python << " is not noticed";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(files[i].string()), HasSubstr(changes[i].complaint)));
    }
  }
}

}  // namespace
}  // namespace adtrain
