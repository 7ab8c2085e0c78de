#include "data/TaskImage.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/Checksum.h"
#include "data/formats/TaskGroupHistories.h"

namespace adtrain {
namespace {

/// Throws where an HDF5 call failed: only for lack of memory, as nothing here depends on a file.
void check(bool done) {
  if (!done) throw std::runtime_error("HDF5 cannot make a task's file in memory: " + hdf5_reason());
}

/// The type that h5py uses for booleans.
Hdf5Handle boolean_type() {
  Hdf5Handle boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  const int8_t no = 0, yes = 1;
  H5Tenum_insert(boolean.get(), "FALSE", &no);
  H5Tenum_insert(boolean.get(), "TRUE", &yes);
  return boolean;
}

/// IEEE 754's binary16, which HDF5 1.10 has no name for: the fields are those of h5py's.
Hdf5Handle half_type() {
  constexpr size_t kSign = 15, kExponentAt = 10, kExponent = 5, kMantissaAt = 0, kMantissa = 10, kBias = 15;
  Hdf5Handle half(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(half.get(), kSign, kExponentAt, kExponent, kMantissaAt, kMantissa);
  H5Tset_size(half.get(), sizeof(uint16_t));
  H5Tset_ebias(half.get(), kBias);
  return half;
}

/// As numbers of this type lie in memory, and in the file.
Hdf5Handle hdf5_type(ElementType type) {
  const auto standard = [](hid_t id) { return Hdf5Handle(H5Tcopy(id), H5Tclose); };
  switch (type) {
    case ElementType::kBool:
      return boolean_type();
    case ElementType::kUint8:
      return standard(H5T_STD_U8LE);
    case ElementType::kInt8:
      return standard(H5T_STD_I8LE);
    case ElementType::kUint16:
      return standard(H5T_STD_U16LE);
    case ElementType::kInt16:
      return standard(H5T_STD_I16LE);
    case ElementType::kUint32:
      return standard(H5T_STD_U32LE);
    case ElementType::kInt32:
      return standard(H5T_STD_I32LE);
    case ElementType::kUint64:
      return standard(H5T_STD_U64LE);
    case ElementType::kInt64:
      return standard(H5T_STD_I64LE);
    case ElementType::kFloat16:
      return half_type();
    case ElementType::kFloat32:
      return standard(H5T_IEEE_F32LE);
    case ElementType::kFloat64:
      break;
  }
  return standard(H5T_IEEE_F64LE);
}

Hdf5Handle create_file_in_memory() {
  constexpr size_t kIncrement = 1 << 20;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), kIncrement, /*backing_store=*/false);
  return Hdf5Handle(H5Fcreate("task", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
}

void write_attribute(const Hdf5Handle& object, const char* name, hid_t type, const void* value) {
  const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle attribute(H5Acreate2(object.get(), name, type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
                             H5Aclose);
  check(attribute.valid() && H5Awrite(attribute.get(), type, value) >= 0);
}

/// Large enough to compress well, small enough for HDF5's cache of chunks.
constexpr size_t kChunkBytesOfAllStreams = size_t{1} << 19;
/// Of one stream: a window of some thousand steps touches two or three, and rows may be large.
constexpr size_t kChunkSteps = 4096, kChunkBytesOfAStream = size_t{1} << 22;

}  // namespace

TaskImage::TaskImage(const History& history, const std::vector<int32_t>& optimal_actions, int compression)
    : stream_first_(false),
      compression_(compression),
      rewards_(history.rewards.begin(), history.rewards.end()) {
  const auto steps = static_cast<hsize_t>(history.steps), streams = static_cast<hsize_t>(history.streams);
  const auto add_integers = [this](const char* name, std::vector<hsize_t> shape,
                                   const std::vector<int32_t>& values) {
    add(name, ElementType::kInt32, std::move(shape), values.data());
  };
  add_integers("states", {steps, streams, 2}, history.states);
  add_integers("actions", {steps, streams}, history.actions);
  add_integers("rewards", {steps, streams}, rewards_);
  add_integers("next_states", {steps, streams, 2}, history.next_states);
  add("dones", ElementType::kBool, {steps, streams}, history.dones.data());
  if (!history.compress_markers.empty())
    add_integers("compress_markers", {steps, streams}, history.compress_markers);
  if (!optimal_actions.empty()) add_integers("optimal_actions", {streams, steps}, optimal_actions);
}

TaskImage::TaskImage(const RecordedTask& task, int compression)
    : stream_first_(true), compression_(compression), texts_(task.texts), scores_(task.scores) {
  for (const Column& column : task.columns) {
    std::vector<hsize_t> shape = {static_cast<hsize_t>(task.streams), static_cast<hsize_t>(task.steps)};
    shape.insert(shape.end(), column.type.row.begin(), column.type.row.end());
    add(dataset_name(column.type.kind), column.type.type, std::move(shape), column.bytes.data());
  }
}

std::string TaskImage::bytes(int64_t task) const {
  const Hdf5Turn turn;
  const Hdf5Handle file = create_file_in_memory();
  check(file.valid());
  {
    const Hdf5Handle group(
        H5Gcreate2(file.get(), std::to_string(task).c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Gclose);
    check(group.valid());
    for (const Dataset& dataset : datasets_) write(group, dataset);
    for (const auto& [name, value] : texts_) {
      const Hdf5Handle text(H5Tcopy(H5T_C_S1), H5Tclose);
      H5Tset_size(text.get(), value.size() + 1);
      H5Tset_cset(text.get(), H5T_CSET_UTF8);
      write_attribute(group, name.c_str(), text.get(), value.c_str());
    }
    for (const auto& [name, value] : scores_) write_attribute(group, name.c_str(), H5T_NATIVE_DOUBLE, &value);
  }
  check(H5Fflush(file.get(), H5F_SCOPE_LOCAL) >= 0);
  const ssize_t size = H5Fget_file_image(file.get(), nullptr, 0);
  check(size > 0);
  std::string image(static_cast<size_t>(size), '\0');
  check(H5Fget_file_image(file.get(), image.data(), image.size()) == size);
  return image;
}

void TaskImage::add(const char* name, ElementType type, std::vector<hsize_t> shape, const void* values) {
  const size_t blocks = stream_first_ ? shape[0] : 1, rows = stream_first_ ? shape[1] : shape[0];
  size_t row_values = 1;
  for (size_t axis = stream_first_ ? 2 : 1; axis < shape.size(); ++axis) row_values *= shape[axis];
  const size_t row_bytes = row_values * size_of(type);
  Dataset dataset{name, type, std::move(shape), values, checksum_of(values, blocks * rows * row_bytes), {}};
  const size_t rows_of_chunk = stream_first_ ? std::min(kChunkSteps, kChunkBytesOfAStream / row_bytes)
                                             : kChunkBytesOfAllStreams / row_bytes;
  for (size_t block = 0; compression_ > 0 && block < blocks; ++block) {
    const auto* const first = static_cast<const uint8_t*>(values) + block * rows * row_bytes;
    dataset.chunks.emplace_back(first, rows, row_values, size_of(type), rows_of_chunk, compression_);
  }
  datasets_.push_back(std::move(dataset));
}

void TaskImage::write(const Hdf5Handle& group, const Dataset& dataset) const {
  const auto dimensions = static_cast<int>(dataset.shape.size());
  const Hdf5Handle space(H5Screate_simple(dimensions, dataset.shape.data(), nullptr), H5Sclose);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  if (!dataset.chunks.empty()) {
    std::vector<hsize_t> chunk = dataset.shape;
    chunk[stream_first_ ? 1 : 0] = dataset.chunks.front().rows_of_chunk();
    if (stream_first_) chunk[0] = 1;
    H5Pset_chunk(creation.get(), dimensions, chunk.data());
    H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), static_cast<unsigned>(compression_));
  }
  const Hdf5Handle type = hdf5_type(dataset.type);
  const Hdf5Handle target(H5Dcreate2(group.get(), dataset.name, type.get(), space.get(), H5P_DEFAULT,
                                     creation.get(), H5P_DEFAULT),
                          H5Dclose);
  check(target.valid());
  if (!dataset.chunks.empty()) {
    write_chunks(target, dataset);
  } else {
    check(H5Dwrite(target.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, dataset.values) >= 0);
  }
  const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle checksum(
      H5Acreate2(target.get(), kChecksumAttribute, H5T_STD_U32LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  check(checksum.valid() && H5Awrite(checksum.get(), H5T_NATIVE_UINT32, &dataset.checksum) >= 0);
}

void TaskImage::write_chunks(const Hdf5Handle& target, const Dataset& dataset) const {
  std::vector<hsize_t> offset(dataset.shape.size(), 0);
  hsize_t& row = offset[stream_first_ ? 1 : 0];
  for (size_t block = 0; block < dataset.chunks.size(); ++block) {
    offset[0] = block;
    row = 0;
    for (const CompressedChunks::Bytes& chunk : dataset.chunks[block].chunks()) {
      check(H5Dwrite_chunk(target.get(), H5P_DEFAULT, 0, offset.data(), chunk.size(), chunk.data()) >= 0);
      row += dataset.chunks[block].rows_of_chunk();
    }
  }
}

}  // namespace adtrain
