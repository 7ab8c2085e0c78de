#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"

namespace adtrain {

/// The task families; TaskFamily.h says what each of them is. Those of plug-ins have names alone.
enum class Family { kDarkroom, kDarkroomPermuted, kDarkKeyToDoor, kPlugin };

/// All that `env` may be, the families of plug-ins that are loaded included.
std::vector<std::string> environment_names();

/// Which family of tasks, and which of its tasks are held out. Keys that are not set have the family's
/// published values, or those of its plug-in:
///
/// |                  | horizon | env_split_seed | train_env_ratio |
/// |------------------|---------|----------------|-----------------|
/// | darkroom         | 20      | 0              | 0.9             |
/// | darkroompermuted | 50      | 4              | 0.9             |
/// | darkkeytodoor    | 50      | 4              | 0.95            |
struct EnvironmentOptions {
  std::string env = "darkroom";
  int64_t grid_size = 9;
  int64_t num_actions = 5;
  std::optional<int64_t> horizon;
  std::optional<int64_t> env_split_seed;
  std::optional<double> train_env_ratio;

  void declare(Section& section);
  void check(Findings& findings) const;

  /// The family that `env` names. Throws ConfigError for an unknown name.
  Family family() const;
  /// The family's own name, whatever alias `env` is: part of file names.
  std::string family_name() const;
  int64_t episode_horizon() const;
  int64_t split_seed() const;
  double train_ratio() const;
};

}  // namespace adtrain
