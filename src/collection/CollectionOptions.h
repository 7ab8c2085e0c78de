#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/Section.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// What PPO is run with, in full.
struct PpoSettings {
  int64_t streams;
  int64_t rollout_steps;  ///< of each stream between two rounds of updates
  int64_t batch_size;     ///< samples of a minibatch
  int64_t epochs;         ///< passes over a rollout
  int64_t total_steps;    ///< of all streams together; whole rollouts are made until it is reached
  double learning_rate;
  double discount;
  double gae_lambda;
  double clip_range;
  double entropy_coefficient;
  double value_coefficient;
  double max_grad_norm;

  int64_t rollouts() const { return (total_steps + streams * rollout_steps - 1) / (streams * rollout_steps); }
  /// Length of each stream's history.
  int64_t history_steps() const { return rollouts() * rollout_steps; }
};

/// How histories are collected: the source algorithm, PPO as Stable-Baselines3 has it, and its output.
/// What is not set is as published for the family:
///
/// |                  | n_steps | batch_size | n_epochs |
/// |------------------|---------|------------|----------|
/// | darkroom         | 20      | 50         | 20       |
/// | darkroompermuted | 50      | 50         | 20       |
/// | darkkeytodoor    | 50      | 100        | 10       |
struct CollectionOptions {
  std::string alg = "PPO";
  int64_t alg_seed = 0;
  std::optional<int64_t> n_steps;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> n_epochs;
  int64_t n_stream = 100;
  int64_t total_source_timesteps = 100'000;
  double source_lr = 3e-4;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip_range = 0.2;
  double ent_coef = 0;
  double vf_coef = 0.5;
  double source_max_grad_norm = 0.5;
  std::optional<int64_t> n_process;
  bool write_compress_markers = false;
  bool terminal_next_states = false;

  void declare(Section& section);
  void check(Findings& findings) const;

  PpoSettings ppo(Family family) const;
  /// `history_{env}_{alg}_alg-seed{alg_seed}.hdf5`, as the Python projects name it.
  std::string file_name(const EnvironmentOptions& environment) const;
  /// Threads to collect with: as set, else one for each hardware thread.
  int64_t threads() const;
};

}  // namespace adtrain
