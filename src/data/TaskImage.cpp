#include "data/TaskImage.h"

#include <stdexcept>
#include <utility>

#include "base/Checksum.h"
#include "data/Hdf5.h"

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

Hdf5Handle create_file_in_memory() {
  constexpr size_t kIncrement = 1 << 20;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), kIncrement, /*backing_store=*/false);
  return Hdf5Handle(H5Fcreate("task", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
}

}  // namespace

TaskImage::TaskImage(const History& history, const std::vector<int32_t>& optimal_actions, int compression)
    : compression_(compression), rewards_(history.rewards.begin(), history.rewards.end()) {
  const auto steps = static_cast<hsize_t>(history.steps), streams = static_cast<hsize_t>(history.streams);
  add("states", {steps, streams, 2}, history.states);
  add("actions", {steps, streams}, history.actions);
  add("rewards", {steps, streams}, rewards_);
  add("next_states", {steps, streams, 2}, history.next_states);
  add("dones", {steps, streams}, history.dones);
  if (!history.compress_markers.empty()) add("compress_markers", {steps, streams}, history.compress_markers);
  if (!optimal_actions.empty()) add("optimal_actions", {streams, steps}, optimal_actions);
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
  }
  check(H5Fflush(file.get(), H5F_SCOPE_LOCAL) >= 0);
  const ssize_t size = H5Fget_file_image(file.get(), nullptr, 0);
  check(size > 0);
  std::string image(static_cast<size_t>(size), '\0');
  check(H5Fget_file_image(file.get(), image.data(), image.size()) == size);
  return image;
}

template <class Value>
void TaskImage::add(const char* name, std::vector<hsize_t> shape, const std::vector<Value>& values) {
  const auto rows = static_cast<size_t>(shape.front());
  Dataset dataset{name,
                  std::move(shape),
                  sizeof(Value),
                  values.data(),
                  checksum_of(values.data(), values.size() * sizeof(Value)),
                  std::nullopt};
  if (compression_ > 0) {
    dataset.chunks.emplace(values.data(), rows, values.size() / rows, sizeof(Value), compression_);
  }
  datasets_.push_back(std::move(dataset));
}

void TaskImage::write(const Hdf5Handle& group, const Dataset& dataset) const {
  const auto dimensions = static_cast<int>(dataset.shape.size());
  const Hdf5Handle space(H5Screate_simple(dimensions, dataset.shape.data(), nullptr), H5Sclose);
  const Hdf5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);
  if (dataset.chunks) {
    std::vector<hsize_t> chunk = dataset.shape;
    chunk.front() = dataset.chunks->rows_of_chunk();
    H5Pset_chunk(creation.get(), dimensions, chunk.data());
    H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), static_cast<unsigned>(compression_));
  }
  const Hdf5Handle boolean = boolean_type();
  const bool flags = dataset.value_bytes == 1;
  const Hdf5Handle target(H5Dcreate2(group.get(), dataset.name, flags ? boolean.get() : H5T_STD_I32LE,
                                     space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                          H5Dclose);
  check(target.valid());
  if (dataset.chunks) {
    hsize_t offset[] = {0, 0, 0};
    for (const CompressedChunks::Bytes& chunk : dataset.chunks->chunks()) {
      check(H5Dwrite_chunk(target.get(), H5P_DEFAULT, 0, offset, chunk.size(), chunk.data()) >= 0);
      offset[0] += dataset.chunks->rows_of_chunk();
    }
  } else {
    const hid_t type = flags ? boolean.get() : H5T_NATIVE_INT32;
    check(H5Dwrite(target.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, dataset.values) >= 0);
  }
  const Hdf5Handle scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Handle checksum(
      H5Acreate2(target.get(), kChecksumAttribute, H5T_STD_U32LE, scalar.get(), H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  check(checksum.valid() && H5Awrite(checksum.get(), H5T_NATIVE_UINT32, &dataset.checksum) >= 0);
}

}  // namespace adtrain
