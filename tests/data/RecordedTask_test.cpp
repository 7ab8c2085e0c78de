#include "data/RecordedTask.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Random.h"
#include "data/HistoryFileWriter.h"
#include "data/formats/HistorySource.h"
#include "data/formats/WrittenHistories.h"
#include "environments/Space.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kStreams = 3, kSteps = 5000;  // more than a chunk

Column random_column(ColumnKind kind, ElementType type, std::vector<int64_t> row, RandomStream& random) {
  Column column{{kind, type, std::move(row)}, {}};
  column.bytes.resize(column.type.row_bytes() * kStreams * kSteps);
  const uint32_t values = type == ElementType::kBool ? 2 : 120;  // no NaN among them
  for (uint8_t& byte : column.bytes) byte = static_cast<uint8_t>(random.below(values));
  return column;
}

/// Of a type of numbers for observations, and one for actions.
RecordedTask random_task(ElementType observations, ElementType actions, uint64_t seed) {
  RandomStream random(seed);
  RecordedTask task{
      kStreams, kSteps, {}, {{"task", fmt::format("reach {}", seed)}}, {{"random-score", 0.25}}};
  task.columns = {random_column(ColumnKind::kObservations, observations, {2, 3}, random),
                  random_column(ColumnKind::kActions, actions, {}, random),
                  random_column(ColumnKind::kRewards, ElementType::kFloat32, {}, random),
                  random_column(ColumnKind::kTerminations, ElementType::kBool, {}, random),
                  random_column(ColumnKind::kTruncations, ElementType::kBool, {}, random),
                  random_column(ColumnKind::kExpertActions, actions, {}, random)};
  return task;
}

RecordedTask usual_task(int64_t number) {
  return random_task(ElementType::kFloat32, ElementType::kInt64, static_cast<uint64_t>(number) + 1);
}

HistorySettings settings() {
  return {{"env", "reaching"},
          {"observation-space", Space::box({2, 3}, {-1}, {1}).to_json()},
          {"action-space", Space::discrete(120).to_json()}};
}

/// A writer of two tasks.
HistoryFileWriter writer_at(const fs::path& path, int compression = 4) {
  return {path,        NumberRanges::below(2),     settings(),
          compression, ExistingHistories::kRefuse, HistoryVersion::kAnySpace};
}

std::string whole_file(const fs::path& path, int compression = 4) {
  HistoryFileWriter writer = writer_at(path, compression);
  for (const int64_t task : writer.missing()) writer.write(task, usual_task(task));
  writer.finish();
  return read_file(path);
}

TEST(RecordedTask, IsReadInPlaceAsItWasWrittenWhateverItsTypes) {
  const uint64_t seed = fresh_seed();
  for (const std::string& name : element_type_names()) {
    for (const int compression : {0, 4}) {
      const TemporaryFolder folder;
      const ElementType type = *element_type_of(name);
      const RecordedTask task = random_task(type, is_whole(type) ? type : ElementType::kUint8, seed);
      HistoryFileWriter writer(folder.path() / "h.hdf5", NumberRanges::of({7}), {{"env", "reaching"}},
                               compression, ExistingHistories::kRefuse, HistoryVersion::kAnySpace);
      writer.write(7, task);
      writer.finish();
      const auto source = HistorySource::open(folder.path() / "h.hdf5");
      EXPECT_EQ(source->description(), "version 2, one group a task, stream first");
      ASSERT_EQ(source->tasks().size(), 1);
      EXPECT_EQ(source->tasks()[0].number, 7);
      EXPECT_EQ(source->tasks()[0].name, task.texts.at("task"));
      EXPECT_EQ(source->tasks()[0].attributes.at("random-score"), "0.25");
      for (size_t stream = 0; stream < kStreams; ++stream) {
        const HistoryWindow window = source->window(0, stream, 0, kSteps);
        ASSERT_EQ(window.columns.size(), task.columns.size());
        for (size_t i = 0; i < task.columns.size(); ++i) {
          const Column& written = task.columns[i];
          EXPECT_EQ(window.columns[i].type, written.type);
          const size_t bytes = written.type.row_bytes() * kSteps;
          const auto first = written.bytes.begin() + static_cast<std::ptrdiff_t>(stream * bytes);
          EXPECT_TRUE(std::equal(window.columns[i].bytes.begin(), window.columns[i].bytes.end(), first))
              << name << ", " << name_of(written.type.kind) << ", compression " << compression;
        }
      }
    }
  }
}

TEST(RecordedTask, IsReadByH5pyWithItsChecksumsSpacesAndSettings) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "h.hdf5";
  whole_file(path);
  const RecordedTask task = usual_task(1);
  const std::vector<uint8_t>& states = task.columns[0].bytes;
  write_file(folder.path() / "states", std::string(states.begin(), states.end()));
  EXPECT_NO_THROW(run_python(fmt::format(R"(
import json, zlib
with h5py.File('{0}/h.hdf5') as f:
    assert f.attrs['adtrain-format'] == b'2' and f.attrs['axes'] == b'stream,time', dict(f.attrs)
    assert json.loads(f.attrs['observation-space'])['shape'] == [2, 3] and f.attrs['env'] == b'reaching'
    assert f.attrs['tasks'] == b'2' and len(f.attrs['content_crc32']) == 8
    group = f['1']
    assert group.attrs['task'] == b'reach 2' and group.attrs['random-score'] == 0.25
    states = group['states']
    assert states.chunks == (1, 4096, 2, 3) and states.compression == 'gzip' and states.compression_opts == 4
    assert states[()].tobytes() == open('{0}/states', 'rb').read() and states.dtype == np.float32
    assert group['terminations'].dtype == bool and group['actions'].dtype == np.int64
    for name, data in group.items():
        assert data.shape[:2] == ({1}, {2}) and data.attrs['crc32'] == zlib.crc32(data[()].tobytes()), name
)",
                                         folder.path().string(), kStreams, kSteps)));
}

TEST(RecordedTask, AContinuedFileHasTheBytesOfOneWrittenInOneGo) {
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5");
  const fs::path path = folder.path() / "pieces.hdf5";
  writer_at(path).write(1, usual_task(1));
  HistoryFileWriter writer = writer_at(path);
  EXPECT_THAT(writer.missing(), ElementsAre(0));
  writer.write(0, usual_task(0));
  writer.finish();
  EXPECT_EQ(read_file(path), expected);
}

TEST(RecordedTask, DamagedOnesAreFoundByTheirChecksumsAndMadeAgain) {
  const TemporaryFolder folder;
  const std::string expected = whole_file(folder.path() / "whole.hdf5", 0);
  const fs::path path = folder.path() / "damaged.hdf5", part = path.string() + ".partial/1.hdf5";
  {
    HistoryFileWriter writer = writer_at(path, 0);
    for (const int64_t task : writer.missing()) writer.write(task, usual_task(task));
  }
  std::string bytes = read_file(part);
  const std::vector<uint8_t> states = usual_task(1).columns[0].bytes;
  const size_t place = bytes.find(std::string(states.begin(), states.begin() + 64));
  ASSERT_NE(place, std::string::npos);
  bytes[place] ^= 1;
  write_file(part, bytes);
  HistoryFileWriter writer = writer_at(path, 0);
  EXPECT_THAT(writer.missing(), ElementsAre(1));
  EXPECT_THAT(writer.damages(), ElementsAre(AllOf(HasSubstr("1/states"), HasSubstr("checksum"))));
  writer.write(1, usual_task(1));
  writer.finish();
  EXPECT_EQ(read_file(path), expected);
}

TEST(RecordedTask, OfOtherSpacesDoesNotContinueAFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "h.hdf5";
  writer_at(path).write(1, usual_task(1));
  HistorySettings other = settings();
  other["action-space"] = Space::discrete(3).to_json();
  try {
    HistoryFileWriter(path, NumberRanges::below(2), other, 4, ExistingHistories::kRefuse,
                      HistoryVersion::kAnySpace);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("action-space was"), HasSubstr("\"n\": 3")));
  }
}

}  // namespace
}  // namespace adtrain
