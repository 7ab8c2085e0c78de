#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/Section.h"
#include "environments/TaskSpaces.h"

namespace adtrain {

/// The task families; TaskFamily.h says what each of them is. Those of plug-ins have names alone. kOwn are
/// users' own tasks, of any space, which are in their histories and in environments that workers run: `env`
/// is a label.
enum class Family { kDarkroom, kDarkroomPermuted, kDarkKeyToDoor, kPlugin, kOwn };

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
/// | own tasks        | none    | 0              | 0.9             |
struct EnvironmentOptions {
  std::string env = "darkroom";
  int64_t grid_size = 9;
  int64_t num_actions = 5;
  std::optional<int64_t> horizon;
  std::optional<int64_t> env_split_seed;
  std::optional<double> train_env_ratio;
  std::optional<std::string> observation_space;  ///< own tasks: Minari's JSON
  std::optional<std::string> action_space;       ///< own tasks: Minari's JSON
  std::optional<std::string>
      observation_packing;                  ///< own tasks: values of each digit, with commas between them
  std::optional<std::string> space_groups;  ///< own tasks of several spaces, instead of these: json_of_groups

  void declare(Section& section);
  void check(Findings& findings) const;

  /// The family that `env` names: kOwn where it is no family's name.
  Family family() const;
  bool has_own_tasks() const { return family() == Family::kOwn; }
  /// Of own tasks, where they are known: those of all tasks, or of each group of tasks; else none. Throws
  /// DataError where one is no space.
  std::vector<TaskSpaces> spaces() const;
  /// The family's own name, whatever alias `env` is: part of file names.
  std::string family_name() const;
  /// Throws ConfigError for own tasks, whose episodes end when their environments say so.
  int64_t episode_horizon() const;
  int64_t split_seed() const;
  double train_ratio() const;

 private:
  void check_own_tasks(Findings& findings) const;
  void check_space_groups(Findings& findings) const;
};

}  // namespace adtrain
