#include "collection/CollectionSettings.h"

#include <fmt/format.h>

namespace adtrain {

HistorySettings collection_settings(const EnvironmentOptions& environment, const CollectionOptions& options) {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  const PpoSettings ppo = options.ppo(environment.family());
  HistorySettings settings = {
      {"env", environment.family_name()},
      {"grid_size", text(environment.grid_size)},
      {"horizon", text(environment.episode_horizon())},
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
      {"write_compress_markers", text(options.write_compress_markers == RolloutMarkers::kYes)},
      {"terminal_next_states", text(options.terminal_next_states)},
  };
  // Settings newer than files that may still be continued appear only where they are used.
  if (options.optimal_actions) settings["optimal_actions"] = text(true);
  if (options.kept_streams) settings["kept_streams"] = text(*options.kept_streams);
  if (options.history_compression > 0) settings["history_compression"] = text(options.history_compression);
  return settings;
}

}  // namespace adtrain
