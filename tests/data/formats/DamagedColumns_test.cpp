#include <algorithm>
#include <cstdlib>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Random.h"
#include "data/formats/HistorySource.h"
#include "data/formats/WrittenHistories.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Of every history, as far as a damaged shape may be believed.
std::string values_of(const fs::path& path) {
  const auto source = HistorySource::open(path, {.format = {}, .cache_bytes = 1 << 20});
  std::string values;
  for (size_t task = 0; task < std::min<size_t>(source->tasks().size(), 20); ++task) {
    const std::vector<int64_t>& steps = source->tasks()[task].steps;
    for (size_t history = 0; history < std::min<size_t>(steps.size(), 5); ++history) {
      const HistoryWindow window = source->window(task, history, 0, std::min<int64_t>(4096, steps[history]));
      for (const Column& column : window.columns) values.append(column.bytes.begin(), column.bytes.end());
    }
  }
  return values;
}

/// Some bytes changed: anywhere, or where HDF5's own structures begin, which are small.
std::string damaged(std::string bytes, RandomStream& random) {
  size_t begin = 0, range = bytes.size();
  const char* const structures[] = {"TREE", "SNOD", "HEAP", "states", "actions", "\x89HDF"};
  if (random.below(4) != 0) {
    const size_t from = random.below(static_cast<uint32_t>(bytes.size()));
    const size_t found = bytes.find(structures[random.below(6)], from);
    if (found != std::string::npos) begin = found, range = std::min<size_t>(600, bytes.size() - found);
  }
  const uint32_t changes = 1 + random.below(4);
  for (uint32_t i = 0; i < changes; ++i) {
    char& byte = bytes[begin + random.below(static_cast<uint32_t>(range))];
    byte = random.below(2) == 0 ? static_cast<char>(random.below(256))
                                : static_cast<char>(byte ^ (1 << random.below(8)));
  }
  if (random.below(10) == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size())));
  return bytes;
}

int rounds() {
  const char* const asked = std::getenv("ADTRAIN_FUZZ_ROUNDS");
  return asked == nullptr ? 40 : std::atoi(asked);
}

/// That this process lives is half of the test.
TEST(DamagedColumns, GiveEqualValuesOrAnErrorThatNamesTheFile) {
  const WrittenHistories& written = WrittenHistories::get("xland");
  const std::string whole = read_file(written.path), values = values_of(written.path);
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "damaged.hdf5";
  const uint64_t seed = fresh_seed();
  RandomStream random(seed);
  std::map<std::string, int> outcomes;
  for (int round = 0; round < rounds(); ++round) {
    write_file(path, damaged(whole, random));
    try {
      ++outcomes[values_of(path) == values ? "the same values" : "other values"];
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("damaged.hdf5"));
      ++outcomes["refused"];
    }
  }
  for (const auto& [outcome, count] : outcomes) fmt::print("{}: {}\n", outcome, count);
  // A changed shape or address may be as good as the right one: nothing in the format tells.
  EXPECT_LE(outcomes["other values"], rounds() / 4);
  EXPECT_GT(outcomes["refused"], rounds() / 20);
}

std::string complaint(const std::string& bytes) {
  const TemporaryFolder folder;
  write_file(folder.path() / "damaged.hdf5", bytes);
  try {
    values_of(folder.path() / "damaged.hdf5");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(DamagedColumns, AChunkThatIsNotWholeIsNamed) {
  std::string bytes = read_file(WrittenHistories::get("xland").path);
  const size_t chunk = bytes.find("\x78\x9c");  // zlib's header for level 6
  ASSERT_NE(chunk, std::string::npos);
  bytes[chunk + 20] ^= 0x40;
  EXPECT_THAT(complaint(bytes),
              testing::ContainsRegex("damaged.hdf5: data set [0-9]+/[a-z_]+, chunk \\([0-9, ]+\\): it"));
}

}  // namespace
}  // namespace adtrain
