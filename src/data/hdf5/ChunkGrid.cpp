#include "data/hdf5/ChunkGrid.h"

#include <cstring>

namespace adtrain {
namespace {

/// Steps through a box in C order: false after its last index.
bool advance(Extents& index, const Extents& count, size_t axes) {
  for (size_t axis = axes; axis-- > 0;) {
    if (++index[axis] < count[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

int64_t offset_of(const Extents& corner, const Extents& index, const Extents& shape) {
  int64_t offset = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    offset = offset * shape[axis] + corner[axis] + index[axis];
  return offset;
}

}  // namespace

std::vector<int64_t> chunks_touched(const ArrayLayout& array, const Extents& first, const Extents& count) {
  const Extents grid = array.grid();
  const size_t axes = grid.size();
  Extents lowest(axes), extent(axes), index(axes, 0);
  for (size_t axis = 0; axis < axes; ++axis) {
    if (count[axis] < 1) return {};
    lowest[axis] = first[axis] / array.chunk[axis];
    extent[axis] = (first[axis] + count[axis] - 1) / array.chunk[axis] - lowest[axis] + 1;
  }
  std::vector<int64_t> numbers;
  do {
    numbers.push_back(offset_of(lowest, index, grid));
  } while (advance(index, extent, axes));
  return numbers;
}

Extents first_element_of(const ArrayLayout& array, int64_t chunk) {
  const Extents grid = array.grid();
  Extents element(grid.size());
  for (size_t axis = grid.size(); axis-- > 0;) {
    element[axis] = chunk % grid[axis] * array.chunk[axis];
    chunk /= grid[axis];
  }
  return element;
}

void copy_box(const BoxIn<const uint8_t>& from, const BoxIn<uint8_t>& to, const Extents& count, size_t item) {
  // Trailing axes that are whole in both arrays make longer runs.
  size_t outer = count.size();
  int64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= count[outer];
    if (count[outer] != from.shape[outer] || count[outer] != to.shape[outer]) break;
  }
  Extents index(count.size(), 0);
  const size_t bytes = static_cast<size_t>(run) * item;
  do {
    const auto source = static_cast<size_t>(offset_of(from.corner, index, from.shape)) * item;
    const auto target = static_cast<size_t>(offset_of(to.corner, index, to.shape)) * item;
    std::memcpy(to.bytes + target, from.bytes + source, bytes);
  } while (advance(index, count, outer));
}

}  // namespace adtrain
