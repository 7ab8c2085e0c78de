#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/Parameters.h"

namespace adtrain {

/// A training checkpoint in a `.pt` file: a dict of `model` (a state_dict) and, where they are there,
/// `optimizer`, `step`, `config` and `lr_sched`, as the Python projects save them; or as torch_export_bytes
/// writes it.
struct TorchCheckpoint {
  /// Without the `module.` and `_orig_mod.` of Python's wrappers. In the order of the file, which is that of
  /// the module's parameters.
  std::vector<NamedTensor> model;
  /// AdamW's `exp_avg.NAME` and `exp_avg_sq.NAME` of every parameter, and `step`, as a Snapshot has them;
  /// empty where the file has no optimizer.
  std::vector<NamedTensor> optimizer;
  /// Parameters that never got a gradient: the optimizer has no state for them, and their moments are zeros.
  std::vector<std::string> without_moments;
  std::optional<int64_t> step;
  std::optional<int64_t> schedule_step;                          ///< lr_sched's
  nlohmann::json config = nlohmann::json::object();              ///< a device is a text
  nlohmann::json optimizer_settings = nlohmann::json::object();  ///< of the first group: lr, betas, eps, …
  bool of_adtrain = false;  ///< whether torch_export_bytes has marked it as its own

  /// Throws CheckpointError that says what is wrong with `path`, or what it has that cannot be taken over by
  /// name: several groups of parameters, steps that differ between parameters, amsgrad.
  static TorchCheckpoint parse(std::string_view bytes, const std::filesystem::path& path);
};

}  // namespace adtrain
