#include "collection/CollectionSettings.h"

#include <fmt/format.h>

namespace adtrain {

namespace {

std::string text(const auto& value) {
  return fmt::format("{}", value);
}

/// Those of PPO, whatever is learnt.
HistorySettings learning_settings(const EnvironmentOptions& environment, const CollectionOptions& options) {
  const PpoSettings ppo = options.ppo(environment.family());
  HistorySettings settings = {
      {"env", environment.family_name()},
      {"alg", options.alg},
      {"alg_seed", text(options.alg_seed)},
      {"n_stream", text(ppo.streams)},
      {"n_steps", text(ppo.rollout_steps)},
      {"batch_size", text(ppo.batch_size)},
      {"n_epochs", text(ppo.epochs)},
      {"total_source_timesteps", text(ppo.total_steps)},
      {"source_lr", text(ppo.learning_rate)},
      {"gamma", text(ppo.discount)},
      {"gae_lambda", text(ppo.gae_lambda)},
      {"clip_range", text(ppo.clip_range)},
      {"ent_coef", text(ppo.entropy_coefficient)},
      {"vf_coef", text(ppo.value_coefficient)},
      {"source_max_grad_norm", text(ppo.max_grad_norm)},
  };
  // Settings newer than files that may still be continued appear only where they are used.
  if (options.source_policies > 1) settings["source_policies"] = text(options.source_policies);
  if (options.kept_streams) settings["kept_streams"] = text(*options.kept_streams);
  const int64_t compression = options.compression(environment.family());
  if (compression > 0) settings["history_compression"] = text(compression);
  return settings;
}

}  // namespace

HistorySettings collection_settings(const EnvironmentOptions& environment, const CollectionOptions& options) {
  HistorySettings settings = learning_settings(environment, options);
  settings["grid_size"] = text(environment.grid_size);
  settings["horizon"] = text(environment.episode_horizon());
  settings["write_compress_markers"] = text(options.write_compress_markers == RolloutMarkers::kYes);
  settings["terminal_next_states"] = text(options.terminal_next_states);
  if (options.optimal_actions) settings["optimal_actions"] = text(true);
  return settings;
}

HistorySettings own_collection_settings(const EnvironmentOptions& environment,
                                        const CollectionOptions& options, const WorkerOptions& workers) {
  HistorySettings settings = learning_settings(environment, options);
  settings["env_worker"] = workers.env_worker.value_or("");
  settings["max_episode_steps"] = text(workers.max_episode_steps);
  settings["clip_actions"] = text(workers.clip_actions);
  settings["source_hidden_units"] = text(options.source_hidden_units);
  settings["source_normalize_observations"] = text(options.source_normalize_observations);
  if (workers.env_group) settings["env_group"] = *workers.env_group;
  if (workers.env_random_episodes > 0) settings["env_random_episodes"] = text(workers.env_random_episodes);
  return settings;
}

}  // namespace adtrain
