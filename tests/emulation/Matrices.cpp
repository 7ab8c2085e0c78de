#include "emulation/Matrices.h"

#include <cuda_fp16.h>

#include "emulation/ByteMatrices.h"
#include "emulation/HalfMatrices.h"

namespace adtrain::emulation {
namespace {

using Lanes = std::array<void*, kLanes>;
constexpr int kRowBytes = 16;

float half_of(uint32_t pair) {
  return __half2float(__ushort_as_half(static_cast<uint16_t>(pair)));
}

/// Sums are as exact as double is; a GPU's are a little less so.
template <int Depth, bool Halves>
void multiply(const Lanes& lanes) {
  const auto first_of = [](uint32_t pair) { return Halves ? half_of(pair) : low_of(pair); };
  const auto second_of = [](uint32_t pair) { return Halves ? half_of(pair >> 16) : high_of(pair); };
  float left[16][Depth], right[Depth][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const Product& own = *static_cast<const Product*>(lanes[lane]);
    const int row = lane / 4, column = 2 * (lane % 4);
    for (int part = 0; part < Depth / 4; ++part) {
      float* to = &left[row + 8 * (part % 2)][column + 8 * (part / 2)];
      to[0] = first_of(own.left[part]);
      to[1] = second_of(own.left[part]);
    }
    for (int part = 0; part < Depth / 8; ++part) {
      right[column + 8 * part][row] = first_of(own.right[part]);
      right[column + 8 * part + 1][row] = second_of(own.right[part]);
    }
  }
  double sums[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < Depth; ++k) {
      const double factor = left[row][k];
      for (int column = 0; column < 8; ++column) sums[row][column] += factor * right[k][column];
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    float* own = static_cast<const Product*>(lanes[lane])->sums;
    for (int i = 0; i < 4; ++i) {
      own[i] = static_cast<float>(own[i] + sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
    }
  }
}

void multiply_bytes(const Lanes& lanes) {
  constexpr int kDepth = 32, kOfWord = 4;
  int8_t left[16][kDepth], right[8][kDepth];
  for (int lane = 0; lane < kLanes; ++lane) {
    const ByteProduct& own = *static_cast<const ByteProduct*>(lanes[lane]);
    const int row = lane / 4, first = kOfWord * (lane % 4);
    for (int part = 0; part < 4; ++part)
      std::memcpy(&left[row + 8 * (part % 2)][first + 16 * (part / 2)], &own.left[part], kOfWord);
    for (int part = 0; part < 2; ++part)
      std::memcpy(&right[row][first + 16 * part], &own.right[part], kOfWord);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    int32_t* const own = static_cast<const ByteProduct*>(lanes[lane])->sums;
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      for (int k = 0; k < kDepth; ++k) own[i] += left[row][k] * right[column][k];
    }
  }
}

/// A lane's part of loading or storing.
struct Rows {
  uint32_t* part;
  uint32_t row_of_lane;
};

template <int Count, bool Transposed>
void load(const Lanes& lanes) {
  uint16_t matrices[Count][8][8];
  for (int lane = 0; lane < 8 * Count; ++lane) {
    const Rows& own = *static_cast<const Rows*>(lanes[lane]);
    std::memcpy(matrices[lane / 8][lane % 8], at_shared(own.row_of_lane, kRowBytes), kRowBytes);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const int row = lane / 4, column = 2 * (lane % 4);
    for (int matrix = 0; matrix < Count; ++matrix) {
      const auto& values = matrices[matrix];
      const uint32_t low = Transposed ? values[column][row] : values[row][column];
      const uint32_t high = Transposed ? values[column + 1][row] : values[row][column + 1];
      static_cast<const Rows*>(lanes[lane])->part[matrix] = low | high << 16;
    }
  }
}

void store(const Lanes& lanes) {
  for (int named = 0; named < kLanes; ++named) {
    char* row = at_shared(static_cast<const Rows*>(lanes[named])->row_of_lane, kRowBytes);
    for (int i = 0; i < 4; ++i) {
      const Rows& own = *static_cast<const Rows*>(lanes[4 * (named % 8) + i]);
      std::memcpy(row + 4 * i, own.part + named / 8, sizeof(uint32_t));
    }
  }
}

}  // namespace

void multiply_add(Product own) {
  together(multiply<16, false>, &own);
}

void multiply_add_half(Product own) {
  together(multiply<16, true>, &own);
}

void multiply_add_bytes(ByteProduct own) {
  together(multiply_bytes, &own);
}

void multiply_add_8(Product own) {
  together(multiply<8, false>, &own);
}

template <int Count, bool Transposed>
void load_matrices(uint32_t* part, uint32_t row_of_lane) {
  Rows own = {part, row_of_lane};
  together(load<Count, Transposed>, &own);
}
template void load_matrices<4, false>(uint32_t*, uint32_t);
template void load_matrices<4, true>(uint32_t*, uint32_t);
template void load_matrices<2, false>(uint32_t*, uint32_t);
template void load_matrices<2, true>(uint32_t*, uint32_t);

void store_matrices(uint32_t row_of_lane, const uint32_t (&part)[4]) {
  uint32_t copy[4] = {part[0], part[1], part[2], part[3]};
  Rows own = {copy, row_of_lane};
  together(store, &own);
}

}  // namespace adtrain::emulation
