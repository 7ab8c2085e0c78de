#include "data/hdf5/ArrayReader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/Error.h"
#include "data/hdf5/ChunkGrid.h"

namespace adtrain {
namespace {

constexpr size_t kFilesKeptOpen = 64;
/// HDF5 looks each chunk up by itself, so a page holds little more than one window needs.
constexpr int64_t kChunksOfAPage = 8;
constexpr size_t kPagesBytes = size_t{64} << 20;
constexpr size_t kPageBytes = kChunksOfAPage * sizeof(ChunkPlace) + 160;  // with what the cache adds

int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

int64_t chunk_count(const ArrayLayout& array) {
  return product(array.grid());
}

[[noreturn]] void fail(const ArrayLayout& array, int64_t chunk, const std::string& what) {
  Extents index = first_element_of(array, chunk);
  for (size_t axis = 0; axis < index.size(); ++axis) index[axis] /= array.chunk[axis];
  throw DataError(fmt::format("{}, chunk ({}): {}; the file is damaged or was cut short; fetch it again",
                              array.place(), fmt::join(index, ", "), what));
}

void expect_within(const FileBytes& file, const ArrayLayout& array, int64_t chunk, uint64_t address,
                   uint64_t bytes) {
  if (address <= file.size() && bytes <= file.size() - address) return;
  fail(array, chunk,
       fmt::format("found {} bytes at {}; expected them within the file's {}", bytes, address, file.size()));
}

void exchange_bytes(uint8_t* values, size_t bytes, size_t item) {
  for (size_t first = 0; first + item <= bytes; first += item)
    std::reverse(values + first, values + first + item);
}

std::vector<uint8_t> filled(const ArrayLayout& array) {
  std::vector<uint8_t> bytes(static_cast<size_t>(array.chunk_bytes()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = array.fill[i % array.fill.size()];
  return bytes;
}

/// Whether a box is one run of bytes of a contiguous array.
bool is_one_run(const ArrayPart& part) {
  size_t axis = 0;
  while (axis < part.count.size() && part.count[axis] == 1) ++axis;
  for (++axis; axis < part.count.size(); ++axis) {
    if (part.count[axis] != part.array->shape[axis]) return false;
  }
  return true;
}

}  // namespace

ArrayReader::ArrayReader(Hdf5Metadata& metadata, size_t cache_bytes)
    : metadata_(metadata), files_(kFilesKeptOpen), pages_(kPagesBytes), chunks_(cache_bytes) {}

void ArrayReader::read(const std::vector<ArrayPart>& parts) {
  find_places(parts);
  for (const ArrayPart& part : parts) {
    read_part(part);
    if (!part.array->big_endian) continue;
    const auto item = static_cast<size_t>(part.array->item());
    exchange_bytes(part.to, static_cast<size_t>(product(part.count)) * item, item);
  }
}

/// Asks for all places that are not known, of each file at once.
void ArrayReader::find_places(const std::vector<ArrayPart>& parts) {
  std::map<std::string, std::vector<Hdf5Metadata::ChunkQuestion>> questions;
  std::vector<int64_t> pages;
  for (const ArrayPart& part : parts) {
    if (part.array->contiguous) continue;
    pages.clear();
    for (const int64_t chunk : chunks_touched(*part.array, part.first, part.count)) {
      const int64_t page = chunk / kChunksOfAPage;
      const bool new_here = pages.empty() || pages.back() != page;
      if (new_here && !pages_.get({part.array->id, page}) && !chunks_.get({part.array->id, chunk}))
        pages.push_back(page);
    }
    for (const int64_t page : pages) {
      Hdf5Metadata::ChunkQuestion& question =
          questions[part.array->path].emplace_back(Hdf5Metadata::ChunkQuestion{part.array.get(), {}});
      question.chunks.resize(
          static_cast<size_t>(std::min(kChunksOfAPage, chunk_count(*part.array) - page * kChunksOfAPage)));
      std::iota(question.chunks.begin(), question.chunks.end(), page * kChunksOfAPage);
    }
  }
  for (const auto& [path, of_file] : questions) {
    std::vector<Page> found = metadata_.chunks(of_file);
    for (size_t i = 0; i < of_file.size(); ++i) {
      const Key key{of_file[i].array->id, of_file[i].chunks.front() / kChunksOfAPage};
      pages_.put(key, std::make_shared<const Page>(std::move(found[i])), kPageBytes);
    }
  }
}

std::shared_ptr<const ArrayReader::Page> ArrayReader::page(const ArrayLayout& array, int64_t number) {
  if (auto known = pages_.get({array.id, number})) return known;
  // Other threads have pushed it out since.
  Hdf5Metadata::ChunkQuestion question{&array, {}};
  question.chunks.resize(
      static_cast<size_t>(std::min(kChunksOfAPage, chunk_count(array) - number * kChunksOfAPage)));
  std::iota(question.chunks.begin(), question.chunks.end(), number * kChunksOfAPage);
  return std::make_shared<const Page>(std::move(metadata_.chunks({question}).front()));
}

std::shared_ptr<const FileBytes> ArrayReader::file(const std::string& path) {
  if (auto open = files_.get(path)) return open;
  auto opened = std::make_shared<const FileBytes>(path);
  files_.put(path, opened, 1);
  return opened;
}

void ArrayReader::read_part(const ArrayPart& part) {
  if (product(part.count) == 0 || read_run(part)) return;
  const ArrayLayout& array = *part.array;
  for (const int64_t number : chunks_touched(array, part.first, part.count)) {
    const std::shared_ptr<const Bytes> bytes = chunk(array, number);
    const Extents begin = first_element_of(array, number);
    Extents in_chunk(begin.size()), in_part(begin.size()), count(begin.size());
    for (size_t axis = 0; axis < begin.size(); ++axis) {
      const int64_t from = std::max(begin[axis], part.first[axis]);
      const int64_t to = std::min(begin[axis] + array.chunk[axis], part.first[axis] + part.count[axis]);
      in_chunk[axis] = from - begin[axis];
      in_part[axis] = from - part.first[axis];
      count[axis] = to - from;
    }
    copy_box({bytes->data(), array.chunk, std::move(in_chunk)}, {part.to, part.count, std::move(in_part)},
             count, static_cast<size_t>(array.item()));
  }
}

/// A long run of a contiguous data set goes where it is wanted, without a copy.
bool ArrayReader::read_run(const ArrayPart& part) {
  const ArrayLayout& array = *part.array;
  if (!array.contiguous || !array.address || !is_one_run(part)) return false;
  int64_t element = 0;
  for (size_t axis = 0; axis < part.first.size(); ++axis)
    element = element * array.shape[axis] + part.first[axis];
  const uint64_t offset = *array.address + static_cast<uint64_t>(element * array.item());
  const auto bytes = static_cast<uint64_t>(product(part.count) * array.item());
  const std::shared_ptr<const FileBytes> from = file(array.path);
  expect_within(*from, array, chunks_touched(array, part.first, part.count).front(), offset, bytes);
  from->read(offset, bytes, part.to);
  return true;
}

std::shared_ptr<const ArrayReader::Bytes> ArrayReader::chunk(const ArrayLayout& array, int64_t number) {
  if (auto known = chunks_.get({array.id, number})) return known;
  auto bytes =
      std::make_shared<const Bytes>(array.contiguous ? piece(array, number) : inflated(array, number));
  chunks_.put({array.id, number}, bytes, bytes->size());
  return bytes;
}

ArrayReader::Bytes ArrayReader::piece(const ArrayLayout& array, int64_t number) {
  if (!array.address) return filled(array);
  const Extents begin = first_element_of(array, number);
  int64_t element = 0, elements = 1;
  for (size_t axis = 0; axis < begin.size(); ++axis) {
    element = element * array.shape[axis] + begin[axis];
    elements *= std::min(array.chunk[axis], array.shape[axis] - begin[axis]);
  }
  const uint64_t offset = *array.address + static_cast<uint64_t>(element * array.item());
  const auto size = static_cast<size_t>(elements * array.item());
  const std::shared_ptr<const FileBytes> from = file(array.path);
  expect_within(*from, array, number, offset, size);
  Bytes bytes(static_cast<size_t>(array.chunk_bytes()));
  from->read(offset, size, bytes.data());
  return bytes;
}

ArrayReader::Bytes ArrayReader::inflated(const ArrayLayout& array, int64_t number) {
  const std::shared_ptr<const Page> places = page(array, number / kChunksOfAPage);
  const ChunkPlace& place = places->at(static_cast<size_t>(number % kChunksOfAPage));
  if (place.address == ChunkPlace::kNotWritten) return filled(array);
  const std::shared_ptr<const FileBytes> from = file(array.path);
  expect_within(*from, array, number, place.address, place.bytes);
  const auto raw = static_cast<size_t>(array.chunk_bytes());
  if (place.bytes > ChunkFilters::most_stored(raw) ||
      !array.filters.can_shrink(raw, place.bytes, place.skipped_filters)) {
    fail(array, number,
         fmt::format("found {} bytes; expected those of {} values of {}", place.bytes,
                     raw / static_cast<size_t>(array.item()), name_of(array.type)));
  }
  Bytes stored(place.bytes);
  from->read(place.address, stored.size(), stored.data());
  Bytes bytes(raw);
  const std::string wrong = array.filters.undo(stored, place.skipped_filters, bytes.data(), raw);
  if (!wrong.empty()) fail(array, number, wrong);
  return bytes;
}

}  // namespace adtrain
