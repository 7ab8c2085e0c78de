#include "data/hdf5/ArrayLayout.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr int64_t kLargestExtent = int64_t{1} << 48;
constexpr double kMostBytes = 0x1p60;  ///< of an array, so that no sum of offsets overflows
constexpr size_t kMostAxes = 8;
/// Of a contiguous data set this much is read at once, so that neighbours in time are not read one by one.
constexpr int64_t kPieceBytes = int64_t{1} << 18;

uint64_t next_id() {
  static std::atomic<uint64_t> next{0};
  return ++next;
}

[[noreturn]] void fail(const ArrayLayout& layout, const std::string& what) {
  throw DataError(fmt::format("{} {}", layout.place(), what));
}

[[noreturn]] void fail_as_damaged(const ArrayLayout& layout, const std::string& what) {
  fail(layout, what + "; the file is damaged; fetch it again");
}

std::vector<int64_t> extents(const ArrayLayout& layout, const json& list, const char* what, int64_t least) {
  std::vector<int64_t> numbers;
  for (const json& extent : list) {
    if (!extent.is_number_unsigned() || extent.get<uint64_t>() > static_cast<uint64_t>(kLargestExtent) ||
        extent.get<int64_t>() < least) {
      fail_as_damaged(layout, fmt::format("has the {} {}", what, abridged(list.dump())));
    }
    numbers.push_back(extent.get<int64_t>());
  }
  return numbers;
}

/// Trailing axes whole as far as they fit, so that a piece is one run of bytes.
std::vector<int64_t> pieces_of(const ArrayLayout& layout) {
  std::vector<int64_t> piece(layout.shape.size(), 1);
  int64_t room = std::max<int64_t>(1, kPieceBytes / layout.item());
  for (size_t axis = layout.shape.size(); axis-- > 0;) {
    piece[axis] = std::clamp<int64_t>(layout.shape[axis], 1, room);
    if (piece[axis] < layout.shape[axis]) break;
    room /= piece[axis];
  }
  return piece;
}

std::vector<uint8_t> fill_of(const ArrayLayout& layout, const std::string& digits) {
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.item()), 0);
  if (digits.size() != 2 * bytes.size()) return bytes;
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return bytes;
}

void take_chunks(ArrayLayout& layout, const json& description) {
  layout.chunk = extents(layout, description.at("chunk"), "chunks", 1);
  if (layout.chunk.size() != layout.shape.size())
    fail_as_damaged(layout, fmt::format("has chunks of {} axes for {}", layout.chunk.size(), layout.rank()));
  double bytes = static_cast<double>(layout.item());
  for (const int64_t extent : layout.chunk) bytes *= static_cast<double>(extent);
  if (bytes > static_cast<double>(ArrayLayout::kLargestChunk)) {
    fail(layout,
         fmt::format("has chunks of {}; expected {} at most, as whole chunks are read; rewrite the file with "
                     "smaller ones: h5repack -l CHUNK=… FILE OUT",
                     human_bytes(bytes), human_bytes(static_cast<double>(ArrayLayout::kLargestChunk))));
  }
  std::vector<int64_t> numbers;
  std::vector<std::string> names;
  for (const json& filter : description.at("filters")) {
    numbers.push_back(filter.at("id"));
    names.push_back(filter.at("name"));
  }
  layout.filters = ChunkFilters(std::move(numbers), names, size_of(layout.type), layout.place());
}

}  // namespace

ArrayLayout ArrayLayout::from_json(const json& description, std::string path, std::string dataset) {
  ArrayLayout layout;
  layout.path = std::move(path);
  layout.dataset = std::move(dataset);
  layout.id = next_id();
  try {
    if (description.contains("error")) fail(layout, description.at("error"));
    const std::optional<ElementType> type = element_type_of(description.at("type").get<std::string>());
    if (!type) {
      fail(layout, fmt::format("holds {}; expected integers, IEEE reals or booleans: {}",
                               description.at("found").get<std::string>(), join(element_type_names(), ", ")));
    }
    layout.type = *type;
    layout.big_endian = description.at("big_endian");
    layout.shape = extents(layout, description.at("shape"), "shape", 0);
    if (layout.shape.empty() || layout.shape.size() > kMostAxes)
      fail(layout, fmt::format("has {} axes; expected 1 to {}", layout.shape.size(), kMostAxes));
    double bytes = static_cast<double>(layout.item());
    for (const int64_t extent : layout.shape) bytes *= static_cast<double>(std::max<int64_t>(extent, 1));
    if (bytes > kMostBytes)
      fail_as_damaged(layout, fmt::format("has the shape ({})", fmt::join(layout.shape, ", ")));
    layout.fill = fill_of(layout, description.at("fill"));
    const std::string storage = description.at("storage");
    if (storage == "chunked") {
      take_chunks(layout, description);
      return layout;
    }
    if (storage != "contiguous") {
      fail(layout,
           fmt::format("is {}; expected it contiguous or in chunks of this file; rewrite the file with "
                       "`h5repack -l CONTI FILE OUT`",
                       storage));
    }
    layout.contiguous = true;
    layout.chunk = pieces_of(layout);
    if (!description.at("address").is_null()) layout.address = description.at("address").get<uint64_t>();
    if (layout.address && static_cast<double>(*layout.address) > kMostBytes)
      fail_as_damaged(layout, fmt::format("lies at byte {}", *layout.address));
    return layout;
  } catch (const json::exception& error) {
    fail_as_damaged(layout, fmt::format("has a description that cannot be read ({})", error.what()));
  }
}

int64_t ArrayLayout::chunk_bytes() const {
  return std::accumulate(chunk.begin(), chunk.end(), item(), std::multiplies<>());
}

std::vector<int64_t> ArrayLayout::grid() const {
  std::vector<int64_t> counts;
  for (size_t axis = 0; axis < shape.size(); ++axis)
    counts.push_back((shape[axis] + chunk[axis] - 1) / chunk[axis]);
  return counts;
}

std::string ArrayLayout::place() const {
  return fmt::format("{}: data set {}", path, dataset);
}

}  // namespace adtrain
