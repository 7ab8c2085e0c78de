#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/BestCheckpoint.h"
#include "model/Parameters.h"

namespace adtrain {

/// The state of a run after one optimizer step. Tensors may share memory with what is being trained.
struct Snapshot {
  int64_t step = 0;
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  /// Other state that resuming needs; stored in the manifest.
  nlohmann::json state = nlohmann::json::object();
};

/// What is read of a checkpoint. The optimizer's state is twice as large as the weights.
enum class CheckpointPart { kAll, kWeights };

/// The checkpoints of one run: folders `step-N` of model.safetensors, optimizer.safetensors and
/// manifest.json, and the symbolic link `latest`. Where one of them is recorded as the best (BestCheckpoint),
/// it stays however old it is, and the link `best` points to it.
///
/// A folder is written as `step-N.tmp`, flushed to the disk, read back and renamed, so `step-N` is complete
/// whenever it exists. Older ones are deleted only after the new one is complete, and are first renamed to
/// end in `.tmp`. Names with that ending are leftovers of a killed run. For one process and thread: rank 0
/// has the store, and the other ranks receive their state from it.
///
/// A `step-N` whose manifest is of another step has been renamed by somebody. It is unusable and is passed
/// over, it is not counted among those that are kept, and nothing deletes it.
class CheckpointStore {
 public:
  static constexpr const char* kModelFile = "model.safetensors";

  /// `folder` need not exist yet, but the run's folder above it: a save makes none where the run was moved
  /// away. Keeps the `keep` newest checkpoints, but at least two, and the best one.
  CheckpointStore(std::filesystem::path folder, int64_t keep);

  /// Throws CheckpointError where it cannot be written (no space, no permission) or does not verify when it
  /// is read back. Everything that existed before is untouched then, and training may continue. Once it
  /// returns, the step is safe. It returns warnings, one for each secondary operation that failed: the link
  /// `latest`, the deletion of older ones. Folders of later steps are removed at the end: the next resume
  /// would otherwise load a state from before the run went back. For the same reason a best one of this step
  /// or a later one is forgotten.
  std::vector<std::string> save(const Snapshot& snapshot);

  /// Records `best`, whose step is saved, points the link `best` to it, and deletes the one before where that
  /// is no longer kept. Returns warnings, as `save` does.
  std::vector<std::string> keep_best(const BestCheckpoint& best) const;
  /// The best one; nothing where none is recorded, or its folder is gone.
  std::optional<BestCheckpoint> best() const;

  /// Reads the files of `step-N` back. Throws CheckpointError that names the first one that is missing or not
  /// what the manifest says, or says that the manifest is of another step.
  void verify(int64_t step) const;
  /// The newest step that verifies; none where there is none.
  std::optional<int64_t> newest_verified() const;

  /// A checkpoint that was read, and why newer ones were skipped; also which older names contradict their
  /// manifests, as these may be newer.
  struct Found {
    Snapshot snapshot;
    std::filesystem::path path;
    std::vector<std::string> passed_over;
  };
  /// The newest checkpoint whose files, as far as they are read, match its manifest. Throws CheckpointError
  /// where there is none, which says what is wrong with each.
  Found newest(CheckpointPart part = CheckpointPart::kAll) const;
  /// Whether there is no `step-N`, verified or not.
  bool empty() const { return steps().empty(); }
  /// The steps of all `step-N`, verified or not, ascending.
  std::vector<int64_t> steps() const;
  /// The same without those whose manifest is of another step.
  std::vector<int64_t> steps_as_named() const;
  std::filesystem::path path_of(int64_t step) const;

  /// Reads and verifies one checkpoint's folder. Removes the `module.` that Python's data-parallel wrapper
  /// puts before names. Throws CheckpointError that names the file at fault.
  static Snapshot load(const std::filesystem::path& checkpoint, CheckpointPart part = CheckpointPart::kAll);
  /// Without the `module.` before names.
  static std::vector<NamedTensor> without_wrapper(std::vector<NamedTensor> tensors);

 private:
  static void verify_files(const std::filesystem::path& checkpoint);
  static void remove_half_written(const std::filesystem::path& folder);
  void remove_leftovers() const;
  void write(const Snapshot& snapshot, const std::filesystem::path& folder) const;
  std::string fault_of_name(int64_t step) const;
  bool holds_any() const;
  std::string keep_misnamed(int64_t step) const;
  void put_in_place(const std::filesystem::path& written, int64_t step) const;
  void point_latest_to(int64_t step) const;
  void point_link_to_best() const;
  void forget_best_from(int64_t step) const;
  void prune(int64_t newest) const;

  std::filesystem::path folder_;
  int64_t keep_;
};

}  // namespace adtrain
