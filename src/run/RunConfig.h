#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "collection/CollectionOptions.h"
#include "config/Section.h"
#include "data/DataOptions.h"
#include "data/WindowIndex.h"
#include "environments/EnvironmentOptions.h"
#include "environments/TaskOptions.h"
#include "environments/worker/WorkerOptions.h"
#include "evaluation/EvaluationOptions.h"
#include "evaluation/scoring/ScoringOptions.h"
#include "launch/DistributedOptions.h"
#include "model/ModelOptions.h"
#include "model/QuantisationOptions.h"
#include "placement/PlacementOptions.h"
#include "run/RunFolder.h"
#include "run/RunOptions.h"
#include "training/TrainingOptions.h"

namespace adtrain {

/// Everything that a configuration file can contain: the sections of all components.
struct RunConfig {
  RunOptions run;
  EnvironmentOptions environment;
  TaskOptions tasks;
  CollectionOptions collection;
  DataOptions data;
  ModelOptions model;
  TrainingOptions training;
  EvaluationOptions evaluation;
  ScoringOptions scoring;
  PlacementOptions placement;
  QuantisationOptions quantisation;
  WorkerOptions worker;
  DistributedOptions distributed;

  std::map<std::string, std::string> origins;  ///< where keys were written; not those that have defaults

  /// Reads a YAML file with its includes and `key=value` overrides. Throws one ConfigError with all errors.
  /// Remarks that stop nothing are appended to `notices`.
  static RunConfig load(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                        std::vector<std::string>& notices);

  /// The sections, bound to this object's members: in the order in which they are documented and saved.
  std::vector<Section> sections();

  /// Every key with its value, as YAML that starts an identical run.
  std::string resolved_yaml() const;
  /// The same as a JSON object, on one line.
  std::string resolved_json() const;
  /// Eight hexadecimal digits that differ where any key that shapes the run's arithmetic differs between
  /// ranks.
  std::string fingerprint() const;

  RunFolder folder() const;
  /// The file of histories that `adtrain collect` writes.
  std::filesystem::path history_file() const;
  /// What is trained on, for people: `histories` of own tasks, where they are given, else history_file().
  /// What that means is found by history_paths.
  std::string histories() const;
  /// Where a key was written, and its name, for errors that are found later: "run.yaml:12: histories".
  std::string place_of(const std::string& key) const;
  /// The environment's part in the network's shape.
  ModelShape model_shape() const {
    return {environment.grid_size, environment.num_actions, environment.spaces(), data.sequence_packing};
  }
  /// How the data set's windows are cut, for training (`positions` as configured) or the held-out loss
  /// (last).
  WindowShape window_shape(LossPositions positions) const;
};

}  // namespace adtrain
