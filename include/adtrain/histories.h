#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace adtrain {

/// The learning histories of one task, on the CPU, each stream's steps in the order of time.
struct TaskHistory {
  at::Tensor observations;       ///< (streams, steps, 2) int32: the cell before each step
  at::Tensor actions;            ///< (streams, steps) int32
  at::Tensor rewards;            ///< (streams, steps) float32
  at::Tensor next_observations;  ///< (streams, steps, 2) int32: the cell after each step
  at::Tensor dones;              ///< (streams, steps) bool: true on the last step of an episode
};

/// A file of learning histories (docs/history-format.md), made by `adtrain collect` or by the Python
/// projects.
///
///     adtrain::Histories histories("histories/history_darkroom_PPO_alg-seed0.hdf5");
///     adtrain::TaskHistory task = histories.read(3);
///
/// The HDF5 library runs in another process, the program `adtrain-history-reader`: in the folder of this
/// program, in a folder of PATH, or where adtrain was built. So a damaged file is an error here, never a
/// crash. Errors are std::runtime_error: with exit code 4 where the file is missing, malformed or damaged,
/// and 3 where the reading program is. Thread-safe; reads come one after another.
class Histories {
 public:
  explicit Histories(const std::filesystem::path& file);
  ~Histories();
  Histories(const Histories&) = delete;
  Histories& operator=(const Histories&) = delete;

  int64_t tasks() const;  ///< how many
  /// Ascending: 0 … tasks() − 1, or fewer of the family's.
  std::vector<int64_t> task_numbers() const;
  int64_t steps() const;    ///< of each stream
  int64_t streams() const;  ///< that learnt each task side by side
  /// The keys of the configuration that the file was collected with, and their values; empty in files of
  /// other programs.
  const std::map<std::string, std::string>& settings() const;

  /// One of task_numbers(), else std::invalid_argument. Checks every value's range, and the checksum
  /// of every data set that has one.
  TaskHistory read(int64_t task) const;

 private:
  class File;
  std::unique_ptr<File> file_;
};

}  // namespace adtrain
