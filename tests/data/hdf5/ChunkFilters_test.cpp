#include "data/hdf5/ChunkFilters.h"

#include <cstring>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "base/Error.h"
#include "base/Random.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

constexpr int64_t kGzip = ChunkFilters::kDeflate, kShuffle = ChunkFilters::kShuffle,
                  kFletcher = ChunkFilters::kFletcher32;

Bytes random_bytes(size_t size, uint64_t seed) {
  RandomStream random(seed);
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.below(7));
  return bytes;
}

Bytes deflated(const Bytes& bytes) {
  uLongf size = compressBound(bytes.size());
  Bytes result(size);
  compress2(result.data(), &size, bytes.data(), bytes.size(), 6);
  result.resize(size);
  return result;
}

ChunkFilters filters(std::vector<int64_t> numbers, size_t item = 1) {
  return {std::move(numbers), {}, item, "x.hdf5: data set 0/states"};
}

TEST(ChunkFilters, GzipGivesTheValuesBack) {
  const Bytes values = random_bytes(1000, 1);
  Bytes stored = deflated(values), found(values.size());
  EXPECT_EQ(filters({kGzip}).undo(stored, 0, found.data(), found.size()), "");
  EXPECT_EQ(found, values);
}

TEST(ChunkFilters, ASkippedFilterIsNotUndone) {
  const Bytes values = random_bytes(1000, 2);
  Bytes stored = values, found(values.size());
  EXPECT_EQ(filters({kShuffle, kGzip}, 4).undo(stored, 0b11, found.data(), found.size()), "");
  EXPECT_EQ(found, values);
}

TEST(ChunkFilters, AGzipStreamOfAnotherSizeIsSaid) {
  const Bytes values = random_bytes(1000, 3);
  Bytes found(1001), stored = deflated(values);
  EXPECT_EQ(filters({kGzip}).undo(stored, 0, found.data(), 1001), "it inflates to 1000 bytes; expected 1001");
  stored = deflated(values);
  EXPECT_EQ(filters({kGzip}).undo(stored, 0, found.data(), 999), "it inflates to more than 999 bytes");
  stored = deflated(values);
  stored.resize(stored.size() / 2);
  EXPECT_EQ(filters({kGzip}).undo(stored, 0, found.data(), 1000), "its gzip stream is damaged or cut short");
  stored = deflated(values);
  stored[stored.size() - 1] ^= 1;  // of its checksum
  EXPECT_EQ(filters({kGzip}).undo(stored, 0, found.data(), 1000), "its gzip stream is damaged or cut short");
  stored = {1, 2, 3};
  EXPECT_EQ(filters({kShuffle}, 4).undo(stored, 0, found.data(), 4), "it has 3 bytes; expected 4");
}

/// HDF5 takes words big-endian: the sum of 'abcde' is 0x6162 + 0x6364 + 0x6500 = 0x129c6, folded 0x29c7; the
/// sum of sums is 0x6162 + 0xc4c6 + 0x129c6 = 0x24fee, folded 0x4ff0.
TEST(ChunkFilters, Fletcher32IsComparedAsHdf5DefinesIt) {
  const Bytes values = {'a', 'b', 'c', 'd', 'e'};
  Bytes stored = values, found(values.size());
  const uint32_t checksum = 0x4ff029c7;
  stored.resize(9);
  std::memcpy(stored.data() + 5, &checksum, 4);
  EXPECT_EQ(filters({kFletcher}).undo(stored, 0, found.data(), 5), "");
  EXPECT_EQ(found, values);
  stored = values;
  stored.resize(9);
  EXPECT_EQ(filters({kFletcher}).undo(stored, 0, found.data(), 5), "its checksum differs");
  stored = {1, 2};
  EXPECT_EQ(filters({kFletcher}).undo(stored, 0, found.data(), 5), "its checksum differs");
}

TEST(ChunkFilters, UnknownOnesAreRefusedWithNumberNameAndPackage) {
  const auto complaint = [](int64_t number, const char* name) {
    try {
      const ChunkFilters made({number}, {name}, 1, "x.hdf5: data set 0/states");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no complaint");
  };
  EXPECT_THAT(complaint(32001, "blosc"),
              AllOf(HasSubstr("x.hdf5: data set 0/states is compressed by filter 32001 (blosc)"),
                    HasSubstr("hdf5-filter-plugin-blosc-serial")));
  EXPECT_THAT(complaint(32015, ""), HasSubstr("filter 32015 (zstd)"));
  EXPECT_THAT(complaint(40000, "mine"),
              HasSubstr("filter 40000 (mine); expected gzip, shuffle or fletcher32"));
  EXPECT_THROW(filters({kGzip, kGzip}), DataError);
}

TEST(ChunkFilters, KnowHowMuchGzipCanShrink) {
  EXPECT_FALSE(filters({kGzip}).can_shrink(1 << 20, 100, 0));
  EXPECT_TRUE(filters({kGzip}).can_shrink(1 << 20, 1100, 0));
  EXPECT_FALSE(filters({kGzip}).can_shrink(1 << 20, 1100, 1)) << "where gzip was skipped";
  EXPECT_FALSE(filters({}).can_shrink(1001, 1000, 0));
}

}  // namespace
}  // namespace adtrain
