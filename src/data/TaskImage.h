#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ElementType.h"
#include "data/CompressedChunks.h"
#include "data/Hdf5.h"
#include "data/History.h"
#include "data/RecordedTask.h"

namespace adtrain {

/// The HDF5 file of a single task, with a checksum of each data set, as bytes in memory: so that a full disk
/// is the operating system's error, not HDF5's. Without modification times, so that equal histories make
/// equal bytes.
class TaskImage {
 public:
  /// Of version 1. Compresses the data (`compression` is gzip's level, 0 for none) and computes checksums.
  /// Calls HDF5 only in `bytes`, so that many threads work at once. History and optimal actions, (streams,
  /// steps) or empty, must outlive the image.
  TaskImage(const History& history, const std::vector<int32_t>& optimal_actions, int compression);
  /// Of version 2: streams first, in chunks of some thousand steps of one stream, in the columns' own types.
  /// The task must outlive the image.
  TaskImage(const RecordedTask& task, int compression);

  /// The file's bytes, with the group `task`. Takes an Hdf5Turn.
  std::string bytes(int64_t task) const;

 private:
  struct Dataset {
    const char* name;
    ElementType type;
    std::vector<hsize_t> shape;
    const void* values;
    uint32_t checksum;
    /// Of everything, where time is the first axis; else of each stream. Empty without compression.
    std::vector<CompressedChunks> chunks;
  };

  void add(const char* name, ElementType type, std::vector<hsize_t> shape, const void* values);
  void write(const Hdf5Handle& group, const Dataset& dataset) const;
  void write_chunks(const Hdf5Handle& target, const Dataset& dataset) const;

  bool stream_first_;
  int compression_;
  std::vector<int32_t> rewards_;  ///< as version 1 stores them
  std::vector<Dataset> datasets_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> scores_;
};

}  // namespace adtrain
