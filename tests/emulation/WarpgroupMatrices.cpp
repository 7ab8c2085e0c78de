#include "emulation/WarpgroupMatrices.h"

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_fp16.h>

#include "emulation/Emulator.h"
#include "emulation/Matrices.h"

namespace adtrain::emulation {
namespace {

using WarpProduct = std::array<GroupProduct, kLanes>;
using Groups = std::deque<std::vector<WarpProduct>>;  ///< closed groups, and the open one
using Block = std::tuple<unsigned, unsigned, unsigned>;

constexpr int kDepth = 16, kRows = 16, kWarps = 4;

/// What a warp has started, in which launch, and in which thread block.
struct Started {
  unsigned launch;
  Block block;
  Groups groups{1};
};

std::map<std::pair<int, unsigned>, Started> of_warps;  ///< by the block of the cluster and the warp
std::mt19937 chance;

Groups& groups_of_warp() {
  const Block block = {place.block.x, place.block.y, place.block.z};
  const std::pair warp(block_of_cluster(), place.thread.x / kLanes);
  Started& started = of_warps.try_emplace(warp, Started{launches(), block}).first->second;
  const bool same_launch = started.launch == launches();
  if (same_launch && started.block == block) return started.groups;
  const bool waited = started.groups.size() == 1 && started.groups.front().empty();
  started = {launches(), block};
  if (same_launch && !waited) fail("a thread block has ended before its products have arrived");
  return started.groups;
}

float value_of(uint16_t bits, bool halves) {
  return halves ? __half2float(__ushort_as_half(bits)) : low_of(bits);
}

/// Of byte `within` of a row of the matrix that a descriptor describes, "Matrix Descriptor Format" of the PTX
/// ISA, with a swizzle of 128, 64 or 32 bytes: the 16-byte units of a row are exchanged by the number of the
/// row.
uint32_t address_of(uint64_t descriptor, uint32_t row, uint32_t within) {
  const uint32_t first = (descriptor & 0x3fff) << 4, of_eight_rows = (descriptor >> 32 & 0x3fff) << 4;
  const auto swizzle = static_cast<uint32_t>(descriptor >> 62);
  if (swizzle == 0) fail("a matrix without a swizzle is not emulated");
  const uint32_t row_bytes = 256U >> swizzle;
  const uint32_t address = first + row / 8 * of_eight_rows + row % 8 * row_bytes + within;
  return address ^ (address >> 7 & (row_bytes / 16 - 1)) << 4;
}

float element(uint64_t descriptor, bool across, int k, int column, bool halves) {
  const uint32_t row = across ? k : column, within = 2 * (across ? column : k);
  uint16_t bits;
  std::memcpy(&bits, at_shared(address_of(descriptor, row, within), sizeof bits), sizeof bits);
  return value_of(bits, halves);
}

/// Sums of 32 products of bytes, which are neighbours in memory.
void multiply_bytes(const WarpProduct& lanes) {
  constexpr int kBytes = 2 * kDepth;
  const auto read = [](uint64_t descriptor, int row) {
    std::array<int8_t, kBytes> bytes;
    for (int k = 0; k < kBytes; ++k) std::memcpy(&bytes[k], at_shared(address_of(descriptor, row, k), 1), 1);
    return bytes;
  };
  std::vector<std::array<int8_t, kBytes>> right, left;
  for (int column = 0; column < lanes[0].columns; ++column) right.push_back(read(lanes[0].right, column));
  const int first = kRows * static_cast<int>(place.thread.x / kLanes % kWarps);
  for (int row = 0; row < kRows; ++row) left.push_back(read(lanes[0].shared_left, first + row));
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < lanes[0].columns / 2; ++i) {
      const auto &of_row = left[lane / 4 + 8 * (i / 2 % 2)],
                 &of_column = right[i / 4 * 8 + 2 * (lane % 4) + i % 2];
      int32_t& sum = lanes[lane].whole_sums[i];
      for (int k = 0; k < kBytes; ++k) sum += of_row[k] * of_column[k];
    }
  }
}

void multiply(const WarpProduct& lanes) {
  if (lanes[0].whole_sums != nullptr) return multiply_bytes(lanes);
  const int columns = lanes[0].columns;
  const bool halves = lanes[0].halves;
  std::vector<std::array<float, kDepth>> right(columns);
  for (int column = 0; column < columns; ++column) {
    for (int k = 0; k < kDepth; ++k)
      right[column][k] = element(lanes[0].right, lanes[0].across, k, column, halves);
  }
  std::array<std::array<float, kDepth>, kRows> left;
  for (int row = 0; lanes[0].shared_left != 0 && row < kRows; ++row) {
    const int of_group = row + kRows * static_cast<int>(place.thread.x / kLanes % kWarps);
    for (int k = 0; k < kDepth; ++k) {
      left[row][k] = element(lanes[0].shared_left, lanes[0].down, k, of_group, halves);
    }
  }
  for (int lane = 0; lanes[0].shared_left == 0 && lane < kLanes; ++lane) {
    for (int part = 0; part < 4; ++part) {
      float* const to = &left[lane / 4 + 8 * (part % 2)][2 * (lane % 4) + 8 * (part / 2)];
      to[0] = value_of(static_cast<uint16_t>(lanes[lane].left[part]), halves);
      to[1] = value_of(static_cast<uint16_t>(lanes[lane].left[part] >> 16), halves);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < columns / 2; ++i) {
      const int row = lane / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
      double sum = lanes[lane].sums[i];
      for (int k = 0; k < kDepth; ++k) sum += double{left[row][k]} * right[column][k];
      lanes[lane].sums[i] = static_cast<float>(sum);
    }
  }
}

void finish(int left) {
  Groups& groups = groups_of_warp();
  for (; static_cast<int>(groups.size()) > left + 1; groups.pop_front()) {
    for (const WarpProduct& product : groups.front()) multiply(product);
  }
}

}  // namespace

void start_product(const GroupProduct& own) {
  GroupProduct copy = own;
  together(
      [](const auto& lanes) {
        WarpProduct product;
        for (int lane = 0; lane < kLanes; ++lane)
          product[lane] = *static_cast<const GroupProduct*>(lanes[lane]);
        groups_of_warp().back().push_back(product);
        if (chance() % 2 == 0) {  // with all before it
          for (auto& group : groups_of_warp()) {
            for (const WarpProduct& started : std::exchange(group, {})) multiply(started);
          }
        }
      },
      &copy);
}

void close_products() {
  meet_in_warpgroup();
  together([](const auto&) { groups_of_warp().emplace_back(); }, nullptr);
}

void wait_for_products(int left) {
  int groups = left;
  together([](const auto& lanes) { finish(*static_cast<const int*>(lanes[0])); }, &groups);
}

}  // namespace adtrain::emulation
