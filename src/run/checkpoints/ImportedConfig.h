#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"

namespace adtrain {

/// From where an imported run's configuration comes; later ones override earlier ones.
struct ImportedSettings {
  nlohmann::json of_source = nlohmann::json::object();  ///< the pickle's `config`, or settings_in the run's
  std::filesystem::path yaml;                           ///< instead of it; empty for none
  std::vector<std::string> overrides;                   ///< key=value
  nlohmann::json of_network;                            ///< what the tensors say
  bool of_project = true;                               ///< of a Python project, and not adtrain's own
};

/// What the config.yaml of a Python project's run sets, each scalar as a text. Throws ConfigError where it is
/// no configuration.
nlohmann::json settings_in(const std::filesystem::path& yaml);

/// The configuration of a run that continues what a Python project's checkpoint holds. Keys of the source
/// that are unknown here are left out with a notice; `device` and `log_dir` belong to the machine it was
/// trained on, and `mixed_precision: fp32` is `no`. Evaluation shows terminal observations, as the projects
/// do. Throws ConfigError with all errors, and where a setting contradicts the tensors.
RunConfig imported_config(const ImportedSettings& settings, std::vector<std::string>& notices);

}  // namespace adtrain
