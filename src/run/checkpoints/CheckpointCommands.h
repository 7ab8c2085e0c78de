#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

/// What the commands `adtrain checkpoint …` do. Each prints its answer to standard output, as JSON where
/// `json`. `target` is the folder of a run or of one of its checkpoints. All throw CheckpointError where
/// there is no checkpoint, and where the one that they are to read is damaged.
namespace adtrain {

/// Prints each checkpoint's step, age, size and configuration, from its manifest; damaged ones too, and why.
/// Does not read the tensors' files.
ExitCode list_checkpoints(const std::filesystem::path& target, bool json);

/// Reads every file of every checkpoint and compares it with the manifest's checksums; all values must be
/// finite. Prints one line each. Returns kDone where all are usable, else kCheckpoint.
ExitCode verify_checkpoints(const std::filesystem::path& target, bool json);

/// Prints what one checkpoint (of a run: its newest that verifies) holds: step, configuration, files, and
/// every tensor with type, shape and statistics.
ExitCode inspect_checkpoint(const std::filesystem::path& target, bool json);

/// Writes one checkpoint (of a run: its newest that verifies) as the file `out` for Python's torch.load: see
/// torch_export_bytes. Replaces `out` atomically. Throws EnvironmentError where it cannot be written.
/// `overrides` ask for quantised weights, or for nothing. Then `out` is FILE.safetensors, with the weights in
/// bitsandbytes' form, or the folder of a new run whose one checkpoint has them so, which adtrain score and
/// evaluate take. Throws ConfigError where it is none of these, or a run is there.
ExitCode export_checkpoint(const std::filesystem::path& target, const std::filesystem::path& out,
                           const std::vector<std::string>& overrides);

/// The command line of `adtrain checkpoint import`.
struct ImportRequest {
  /// `.pt` of a Python project, or of export_checkpoint; `.safetensors`, quantised or not.
  std::filesystem::path file;
  std::filesystem::path out;     ///< the run's folder; empty: runs/NAME, after the file's
  std::filesystem::path config;  ///< YAML to take instead of the file's configuration; empty for none
  std::vector<std::string> overrides;
  std::string markers;  ///< of compressed context: "beside" the transitions, or "replace"; empty: not said
  /// The token type that the source added to the query in training: "0", "none", or empty: 0 with compressed
  /// context in a Python project's .pt, else none.
  std::string query_type;
};

/// Makes a run of one checkpoint of the file. Throws CheckpointError where the file is none, or of a network
/// that is not here, and ConfigError where its configuration is missing, wrong or contradicts its tensors, or
/// the folder holds a run.
ExitCode import_checkpoint(const ImportRequest& request);

}  // namespace adtrain
