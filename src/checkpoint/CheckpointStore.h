#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/Parameters.h"

namespace adtrain {

/// The state of a run after one optimizer step. Tensors may share memory with what is being trained.
struct Snapshot {
  int64_t step = 0;
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  nlohmann::json state = nlohmann::json::object();  ///< whatever else resuming needs; kept in the manifest
};

/// The checkpoints of one run: folders `step-N` of model.safetensors, optimizer.safetensors and
/// manifest.json, and the symbolic link `latest`.
///
/// A folder is written as `step-N.tmp`, flushed to the disk, read back and renamed, so `step-N` is complete
/// whenever it exists; older ones are deleted only after the new one stands, and under a name ending in
/// `.tmp`. Names with that ending are what a killed run left. For one process and thread: rank 0 has the
/// store, the others get their state from it.
class CheckpointStore {
 public:
  /// `folder` need not exist yet. The `keep` newest checkpoints are kept, two at least.
  CheckpointStore(std::filesystem::path folder, int64_t keep);

  /// Throws CheckpointError where it cannot be written (no space, no permission) or does not verify when it
  /// is read back; all that was there before is untouched then, and training may go on. Once it returns the
  /// step is safe; what it returns are warnings, one for each thing around the checkpoint that failed: the
  /// link `latest`, the deletion of older ones. Folders of later steps are removed in the end: a run that
  /// saves an earlier step has passed them over, and would come back to its former future by them.
  std::vector<std::string> save(const Snapshot& snapshot);

  /// Reads the files of `step-N` back. Throws CheckpointError that names the first one that is missing or not
  /// what the manifest says.
  void verify(int64_t step) const;
  /// The newest step that verifies; none where there is none.
  std::optional<int64_t> newest_verified() const;

  /// A checkpoint that was read, and why newer ones were passed over.
  struct Found {
    Snapshot snapshot;
    std::filesystem::path path;
    std::vector<std::string> passed_over;
  };
  /// The newest checkpoint whose files are what its manifest says. Throws CheckpointError where there is
  /// none, with what is wrong with each.
  Found newest() const;
  /// Whether there is any `step-N`, good or bad.
  bool empty() const { return steps().empty(); }

  /// One checkpoint's folder, verified. A `module.` before names, which Python's data-parallel wrapper
  /// leaves, is taken off. Throws CheckpointError that names the file at fault.
  static Snapshot load(const std::filesystem::path& checkpoint);

 private:
  static void verify_files(const std::filesystem::path& checkpoint);
  static void remove_half_written(const std::filesystem::path& folder);
  std::vector<int64_t> steps() const;  ///< ascending
  std::filesystem::path path_of(int64_t step) const;
  void remove_leftovers() const;
  void write(const Snapshot& snapshot, const std::filesystem::path& folder) const;
  void put_in_place(const std::filesystem::path& written, int64_t step) const;
  void point_latest_to(int64_t step) const;
  void prune(int64_t newest) const;

  std::filesystem::path folder_;
  int64_t keep_;
};

}  // namespace adtrain
