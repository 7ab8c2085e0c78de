#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Random.h"
#include "data/HistoryFileWriter.h"
#include "data/HistorySamples.h"
#include "data/HistorySet.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

TaskFamily small_family() {
  EnvironmentOptions options;
  options.grid_size = 3;
  options.horizon = 6;
  return TaskFamily::of(options);
}

enum class Kind { kPlain, kCompressed, kWithoutChecksums };

/// As an earlier version, or another program, would have left it.
void remove_attributes(const fs::path& path, int64_t tasks) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  for (int64_t task = 0; task < tasks; ++task) {
    for (const char* name : {"states", "actions", "rewards", "next_states", "dones"}) {
      H5Adelete_by_name(file, fmt::format("{}/{}", task, name).c_str(), "crc32", H5P_DEFAULT);
    }
  }
  while (H5Aget_num_attrs(file) > 0)
    H5Adelete_by_idx(file, ".", H5_INDEX_NAME, H5_ITER_NATIVE, 0, H5P_DEFAULT);
  H5Fclose(file);
}

/// A file of nine tasks, and what loading it gives.
class Victim {
 public:
  explicit Victim(Kind kind) {
    const TaskFamily family = small_family();
    HistoryFileWriter writer(path_, NumberRanges::below(family.task_count()),
                             {{"env", "darkroom"}, {"horizon", "6"}}, kind == Kind::kCompressed ? 6 : 0);
    for (int64_t task = 0; task < family.task_count(); ++task) {
      writer.write(task, lived_history(family, task, 24, 4, static_cast<uint64_t>(task)));
    }
    writer.finish();
    if (kind == Kind::kWithoutChecksums) remove_attributes(path_, family.task_count());
    bytes_ = read_file(path_);
    digest_ = load().digest();
  }

  const fs::path& path() const { return path_; }
  const std::string& bytes() const { return bytes_; }

  HistorySet load() const {
    return HistorySet::load(path_, {.tasks = {0, 1, 2, 3, 4, 5, 6, 7, 8},
                                    .steps = 24,
                                    .streams = 4,
                                    .family = small_family(),
                                    .settings = {{"env", "darkroom"}, {"horizon", "6"}}});
  }

  /// "refused", "the same values", or "other values"; anything but a DataError goes through.
  std::string outcome_of(const std::string& bytes) {
    write_file(path_, bytes);
    try {
      return load().digest() == digest_ ? "the same values" : "other values";
    } catch (const DataError& error) {
      reason_ = error.what();
      return reason_.find("crashed the HDF5 library") != std::string::npos ||
                     reason_.find("processor time") != std::string::npos
                 ? "refused, the library was lost"
                 : "refused";
    }
  }
  const std::string& reason() const { return reason_; }

 private:
  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "history.hdf5";
  std::string bytes_, digest_, reason_;
};

/// Another file each time: some bytes changed, one bit changed, or the end missing.
std::string damaged(std::string bytes, RandomStream& random) {
  const auto place = [&] { return random.below(static_cast<uint32_t>(bytes.size())); };
  const auto byte = [&] { return static_cast<char>(random.below(256)); };
  switch (random.below(8)) {
    case 0:
      bytes.resize(place());
      break;
    case 1:
      for (uint32_t i = 0; i < 16; ++i) bytes[place()] = byte();
      break;
    case 2: {
      const uint32_t begin = place();
      for (size_t i = begin; i < std::min<size_t>(begin + 8, bytes.size()); ++i) bytes[i] = '\xff';
      break;
    }
    case 3:
      bytes[place()] ^= static_cast<char>(1 << random.below(8));
      break;
    default:
      bytes[place()] = byte();
  }
  return bytes;
}

/// ADTRAIN_FUZZ_ROUNDS files of each kind; without it as many as a short test may take.
int rounds() {
  const char* asked = std::getenv("ADTRAIN_FUZZ_ROUNDS");
  return asked == nullptr ? 60 : std::atoi(asked);
}

class DamagedHistories : public ::testing::TestWithParam<Kind> {};

/// That this process lives is half of the test.
TEST_P(DamagedHistories, AreRefusedUnlessTheirValuesAreWhole) {
  Victim victim(GetParam());
  RandomStream random(static_cast<uint64_t>(GetParam()));
  std::map<std::string, int> outcomes;
  for (int round = 0; round < rounds(); ++round) {
    const std::string outcome = victim.outcome_of(damaged(victim.bytes(), random));
    ++outcomes[outcome];
    if (outcome == "other values" && GetParam() != Kind::kWithoutChecksums) {
      ADD_FAILURE() << "round " << round << " was accepted with other values";
    }
  }
  for (const auto& [outcome, count] : outcomes) {
    RecordProperty(outcome, count);
    fmt::print("{}: {}\n", outcome, count);
  }
  // Nothing tells, without a checksum, that an action which led nowhere was another one which leads nowhere.
  EXPECT_LE(outcomes["other values"], rounds() / 20);
  EXPECT_GT(outcomes["refused"], rounds() / 8) << "of a small compressed file little is in use";
}

std::string name_of(const ::testing::TestParamInfo<Kind>& tested) {
  constexpr const char* kNames[] = {"Plain", "Compressed", "WithoutChecksums"};
  return kNames[static_cast<int>(tested.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedHistories,
                         ::testing::Values(Kind::kPlain, Kind::kCompressed, Kind::kWithoutChecksums),
                         name_of);

/// Every byte of a file's head, where HDF5's own structures are.
TEST(DamagedHistoryHead, EndsNoProcess) {
  Victim victim(Kind::kPlain);
  std::map<std::string, int> outcomes;
  for (size_t place = 0; place < 400; place += 5) {
    std::string bytes = victim.bytes();
    bytes[place] = static_cast<char>(bytes[place] ^ 0x81);
    ++outcomes[victim.outcome_of(bytes)];
  }
  for (const auto& [outcome, count] : outcomes) fmt::print("{}: {}\n", outcome, count);
  EXPECT_EQ(outcomes["other values"], 0);
  EXPECT_GT(outcomes["refused"], 0);
}

TEST(DamagedHistoryValues, AFlippedBitNamesDataSetAndChecksums) {
  Victim victim(Kind::kPlain);
  const History first = lived_history(small_family(), 0, 24, 4, 0);
  const std::string states(reinterpret_cast<const char*>(first.states.data()),
                           first.states.size() * sizeof(int32_t));
  const size_t place = victim.bytes().find(states);
  ASSERT_NE(place, std::string::npos);
  std::string bytes = victim.bytes();
  bytes[place + 16] ^= 1;
  EXPECT_EQ(victim.outcome_of(bytes), "refused");
  EXPECT_THAT(victim.reason(), AllOf(HasSubstr("history.hdf5: data set 0/states has the checksum "),
                                     HasSubstr("; expected "), HasSubstr("collect the file again")));
}

}  // namespace
}  // namespace adtrain
