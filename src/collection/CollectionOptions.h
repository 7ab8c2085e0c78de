#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collection/PpoSettings.h"
#include "config/Section.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// Whether the file says where rollouts begin and end: auto where the model has compressed context.
enum class RolloutMarkers { kNo, kYes, kAuto };

/// How histories are collected: the source algorithm, PPO as in Stable-Baselines3, and its output. What is
/// not set is as published for the family:
///
/// |                  | n_steps | batch_size | n_epochs |
/// |------------------|---------|------------|----------|
/// | darkroom         | 20      | 50         | 20       |
/// | darkroompermuted | 50      | 50         | 20       |
/// | darkkeytodoor    | 50      | 100        | 10       |
/// | own tasks        | 50      | 50         | 20       |
struct CollectionOptions {
  std::string alg = "PPO";  ///< a name: the algorithm is PPO, whatever it is
  int64_t alg_seed = 0;
  std::optional<int64_t> n_steps;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> n_epochs;
  int64_t n_stream = 100;
  int64_t source_policies = 1;
  int64_t total_source_timesteps = 100'000;
  double source_lr = 3e-4;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip_range = 0.2;
  double ent_coef = 0;
  double vf_coef = 0.5;
  double source_max_grad_norm = 0.5;
  std::optional<int64_t> n_process;
  std::optional<int64_t> kept_streams;
  std::optional<int64_t> history_compression;
  RolloutMarkers write_compress_markers = RolloutMarkers::kNo;
  bool optimal_actions = false;
  bool terminal_next_states = false;
  int64_t source_hidden_units = 64;            ///< own tasks
  bool source_normalize_observations = false;  ///< own tasks

  void declare(Section& section);
  void check(Findings& findings, const EnvironmentOptions& environment) const;
  /// Remarks that stop nothing.
  std::vector<std::string> notices() const;
  /// Replaces auto by what it means.
  void decide(bool compressed_context);

  PpoSettings ppo(Family family) const;
  /// `history_{env}_{alg}_alg-seed{alg_seed}.hdf5`, as the Python projects name it.
  std::string file_name(const EnvironmentOptions& environment) const;
  /// Streams whose histories go into the file: the first ones.
  int64_t streams_kept() const { return kept_streams.value_or(n_stream); }
  /// And those of each source policy among them, rounded up.
  int64_t streams_kept_of_policy() const { return (streams_kept() + source_policies - 1) / source_policies; }
  /// gzip's level: as set, else 4 for own tasks and 0 for grids.
  int64_t compression(Family family) const {
    constexpr int64_t kOfOwnTasks = 4;
    return history_compression.value_or(family == Family::kOwn ? kOfOwnTasks : 0);
  }
  /// Threads for collecting: as set, else one for each hardware thread.
  int64_t threads() const;

 private:
  void check_own_tasks(Findings& findings, const EnvironmentOptions& environment) const;
};

}  // namespace adtrain
