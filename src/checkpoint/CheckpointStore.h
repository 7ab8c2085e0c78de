#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/Parameters.h"

namespace adtrain {

/// The state of a run behind one optimizer step. Tensors may share memory with what is being trained.
struct Snapshot {
  int64_t step = 0;
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
  nlohmann::json state = nlohmann::json::object();  ///< whatever else resuming needs; kept in the manifest
};

/// The checkpoints of one run: folders `step-N` of model.safetensors, optimizer.safetensors and manifest.json, and the
/// symbolic link `latest`. docs/checkpoint-format.md describes them.
///
/// A folder is written as `step-N.tmp`, flushed to the disk and renamed, so `step-N` is complete whenever it exists; older
/// ones are deleted only after the new one stands. For one process and thread.
class CheckpointStore {
 public:
  /// `folder` need not exist yet. The `keep` ≥ 2 newest checkpoints are kept.
  CheckpointStore(std::filesystem::path folder, int64_t keep);

  /// Throws CheckpointError where it cannot be written (no space, no permission); what was there before is untouched then.
  void save(const Snapshot& snapshot);

  /// A checkpoint that was read, and why newer ones were passed over.
  struct Found {
    Snapshot snapshot;
    std::filesystem::path path;
    std::vector<std::string> passed_over;
  };
  /// The newest checkpoint whose files are what the manifest says. Throws CheckpointError where there is none, with what is
  /// wrong with each.
  Found newest() const;
  /// Whether there is any `step-N`, good or bad.
  bool empty() const { return steps().empty(); }

  /// One checkpoint's folder. Throws CheckpointError where it does not verify.
  static Snapshot load(const std::filesystem::path& checkpoint);

 private:
  std::vector<int64_t> steps() const;  ///< ascending
  std::filesystem::path path_of(int64_t step) const;
  void write(const Snapshot& snapshot) const;
  void point_latest_to(int64_t step) const;
  void prune() const;

  std::filesystem::path folder_;
  int64_t keep_;
};

}  // namespace adtrain
