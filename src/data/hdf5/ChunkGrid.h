#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/hdf5/ArrayLayout.h"

namespace adtrain {

using Extents = std::vector<int64_t>;

/// The numbers, in C order over the array's grid of chunks, of the chunks that a box touches; ascending.
std::vector<int64_t> chunks_touched(const ArrayLayout& array, const Extents& first, const Extents& count);

/// The first element of a chunk, along each axis.
Extents first_element_of(const ArrayLayout& array, int64_t chunk);

/// An array in memory in C order, and a corner in it.
template <class Byte>
struct BoxIn {
  Byte* bytes;
  const Extents& shape;
  Extents corner;
};

/// Copies a box of `count` elements of `item` bytes each. Runs that are contiguous in both arrays are copied
/// at once.
void copy_box(const BoxIn<const uint8_t>& from, const BoxIn<uint8_t>& to, const Extents& count, size_t item);

}  // namespace adtrain
