#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/CompressedChunks.h"
#include "data/Hdf5.h"
#include "data/History.h"

namespace adtrain {

/// The HDF5 file of a single task, with a checksum of each data set, as bytes in memory: so that a full disk
/// is the operating system's error, not HDF5's. Without modification times, so that equal histories make
/// equal bytes.
class TaskImage {
 public:
  /// Compresses the data (`compression` is gzip's level, 0 for none) and computes checksums. Calls HDF5 only
  /// in `bytes`, so that many threads work at once. History and optimal actions, (streams, steps) or empty,
  /// must outlive the image.
  TaskImage(const History& history, const std::vector<int32_t>& optimal_actions, int compression);

  /// The file's bytes, with the group `task`. Takes an Hdf5Turn.
  std::string bytes(int64_t task) const;

 private:
  struct Dataset {
    const char* name;
    std::vector<hsize_t> shape;
    size_t value_bytes;
    const void* values;
    uint32_t checksum;
    std::optional<CompressedChunks> chunks;
  };

  template <class Value>
  void add(const char* name, std::vector<hsize_t> shape, const std::vector<Value>& values);
  void write(const Hdf5Handle& group, const Dataset& dataset) const;

  int compression_;
  std::vector<int32_t> rewards_;  ///< as they are stored
  std::vector<Dataset> datasets_;
};

}  // namespace adtrain
