#include "collection/CollectionOptions.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "base/Cores.h"
#include "base/Text.h"

namespace adtrain {
namespace {

/// The published settings of a family.
struct PublishedPpo {
  int64_t rollout_steps, batch_size, epochs;
};
PublishedPpo published_ppo(Family family) {
  switch (family) {
    case Family::kDarkroom:
      return {.rollout_steps = 20, .batch_size = 50, .epochs = 20};
    case Family::kDarkroomPermuted:
    case Family::kPlugin:  // nothing is published: a choice between the other two
    case Family::kOwn:
      return {.rollout_steps = 50, .batch_size = 50, .epochs = 20};
    case Family::kDarkKeyToDoor:
      return {.rollout_steps = 50, .batch_size = 100, .epochs = 10};
  }
  throw std::invalid_argument("no such family of tasks");
}

}  // namespace

void CollectionOptions::declare(Section& section) {
  section.key(
      "alg", alg,
      "Name of the source algorithm, part of the history file's name. adtrain collect runs PPO, whatever it "
      "says.");
  section.key("alg_seed", alg_seed, "Task i learns with random numbers seeded by alg_seed + i.").at_least(0);
  section
      .key("n_steps", n_steps,
           "Steps of each stream between two rounds of updates; null: as published for the family.")
      .unit("steps")
      .at_least(1)
      .at_most(1e6);
  section
      .key("batch_size", batch_size, "Minibatch of the source algorithm; null: as published for the family.")
      .unit("transitions")
      .at_least(2)
      .at_most(1e9);
  section.key("n_epochs", n_epochs, "Passes over each rollout; null: as published for the family.")
      .unit("epochs")
      .at_least(1)
      .at_most(1e6);
  section.key("n_stream", n_stream, "Copies of each task that one policy learns from in parallel.")
      .unit("streams")
      .at_least(1)
      .at_most(1e6);
  section
      .key("source_policies", source_policies,
           "Policies that learn each task, independently and with random numbers of their own. The streams "
           "that are written are divided among them, so that histories of one task differ by more than the "
           "luck of a stream; collecting takes as many times longer.")
      .unit("policies")
      .at_least(1)
      .at_most(1e4);
  section
      .key("total_source_timesteps", total_source_timesteps,
           "Length of learning of a policy, over all of its streams; rounded up to whole rollouts.")
      .unit("steps")
      .at_least(1)
      .at_most(1e12);
  section.key("source_lr", source_lr, "Learning rate of the source algorithm (Adam).").above(0);
  section.key("gamma", gamma, "Discount of later rewards.").at_least(0).at_most(1);
  section.key("gae_lambda", gae_lambda, "Decay of generalised advantage estimation.").at_least(0).at_most(1);
  section.key("clip_range", clip_range, "How far the ratio of new to old probability may leave 1.").above(0);
  section.key("ent_coef", ent_coef, "Weight of the entropy bonus.").at_least(0);
  section.key("vf_coef", vf_coef, "Weight of the value loss.").at_least(0);
  section
      .key("source_max_grad_norm", source_max_grad_norm,
           "The source algorithm's gradients are scaled down to this norm (max_grad_norm is the trainer's).")
      .above(0);
  section
      .key("n_process", n_process,
           "Threads that collect, a task each at a time, or that write what a GPU collects; null takes every "
           "core that the process may use.")
      .unit("threads")
      .at_least(1)
      .at_most(1024);
  section
      .key("kept_streams", kept_streams,
           "Streams of a task whose histories are written; null: as many as n_stream. Stream s is one of "
           "source policy s modulo source_policies, the first ones of each.")
      .unit("streams")
      .at_least(1);
  section
      .key("history_compression", history_compression,
           "Level of gzip in the history file: 0 writes plain arrays, 1 is fast, 9 small; null: 4 for tasks "
           "of your own, else 0.")
      .at_least(0)
      .at_most(9);
  section.key(
      "write_compress_markers", write_compress_markers,
      {{"true", RolloutMarkers::kYes}, {"false", RolloutMarkers::kNo}, {"auto", RolloutMarkers::kAuto}},
      "Add compress_markers to the file: 1 on the first and 2 on the last step of each rollout; auto: where "
      "use_compressed_context is true. adtrain trains without them.");
  section.key(
      "optimal_actions", optimal_actions,
      "Add optimal_actions to the file: the best action in each state that occurs, of shape (streams, "
      "steps).");
  section.key("terminal_next_states", terminal_next_states,
              "Store the last observation of an episode as its final next state, instead of the state after "
              "the reset as the Python projects do.");
  section
      .key("source_hidden_units", source_hidden_units,
           "Tasks of your own: units of each of the source policy's two hidden layers.")
      .unit("units")
      .at_least(1)
      .at_most(65536);
  section.key("source_normalize_observations", source_normalize_observations,
              "Tasks of your own: the source policy sees observations that are brought to mean 0 and "
              "deviation 1 by what it saw before. Histories hold them as they are.");
  section.all_free_on_resume({"alg", "alg_seed"});  // the digest detects histories that differ
  section.ignore("policy", "the source policy is always SB3's MlpPolicy, two tanh layers of 64 units");
}

void CollectionOptions::check(Findings& findings, const EnvironmentOptions& environment) const {
  const auto fits_no_name = [](unsigned char letter) {
    return letter == '/' || letter < ' ' || letter == 127;
  };
  constexpr size_t kLongestName = 100;
  if (alg.empty() || alg.size() > kLongestName || std::ranges::any_of(alg, fits_no_name)) {
    findings.add("alg",
                 fmt::format("found '{}'; expected a name such as PPO, which becomes part of a file's name: "
                             "1 to {} bytes without slashes and control characters",
                             abridged(alg), kLongestName));
  }
  if (optimal_actions && environment.family() == Family::kPlugin) {
    findings.add(
        "optimal_actions",
        fmt::format("found true with env {}, a plug-in's, of which adtrain does not know what is best; "
                    "expected false",
                    environment.env));
  }
  check_own_tasks(findings, environment);
  if (streams_kept() > n_stream * source_policies) {
    findings.add("kept_streams",
                 fmt::format("found {}; expected at most n_stream × source_policies, which is {}",
                             streams_kept(), n_stream * source_policies));
  }
  if (streams_kept() < source_policies) {
    findings.add("source_policies", fmt::format("found {}; expected at most the streams that are written "
                                                "(kept_streams, or n_stream), which are {}",
                                                source_policies, streams_kept()));
  }
}

/// Some keys are of grids alone, others of own tasks.
void CollectionOptions::check_own_tasks(Findings& findings, const EnvironmentOptions& environment) const {
  const auto refuse = [&](bool found, const char* key, const std::string& value, const std::string& why) {
    if (found) findings.add(key, fmt::format("found {} with env {}, {}", value, environment.env, why));
  };
  if (environment.has_own_tasks()) {
    refuse(source_policies > 1, "source_policies", fmt::format("{}", source_policies),
           "your own tasks, each of which one policy learns; expected 1");
    refuse(optimal_actions, "optimal_actions", "true",
           "your own tasks, of which adtrain does not know what is best; expected false");
    refuse(terminal_next_states, "terminal_next_states", "true",
           "your own tasks, whose histories have no next states; expected false");
    refuse(write_compress_markers == RolloutMarkers::kYes, "write_compress_markers", "true",
           "your own tasks, whose histories have no markers; expected false");
    return;
  }
  const std::string grids =
      "a family whose source policy is always the same; expected it with tasks of your "
      "own, or left out";
  refuse(source_hidden_units != CollectionOptions{}.source_hidden_units, "source_hidden_units",
         fmt::format("{}", source_hidden_units), grids);
  refuse(source_normalize_observations, "source_normalize_observations", "true", grids);
}

std::vector<std::string> CollectionOptions::notices() const {
  if (to_lower(alg) == "ppo") return {};
  return {fmt::format("alg: {} is a name, also of the history file; adtrain collect runs PPO", alg)};
}

void CollectionOptions::decide(bool compressed_context) {
  if (write_compress_markers != RolloutMarkers::kAuto) return;
  write_compress_markers = compressed_context ? RolloutMarkers::kYes : RolloutMarkers::kNo;
}

PpoSettings CollectionOptions::ppo(Family family) const {
  const PublishedPpo published = published_ppo(family);
  return {
      .streams = n_stream,
      .rollout_steps = n_steps.value_or(published.rollout_steps),
      .batch_size = batch_size.value_or(published.batch_size),
      .epochs = n_epochs.value_or(published.epochs),
      .total_steps = total_source_timesteps,
      .learning_rate = source_lr,
      .discount = gamma,
      .gae_lambda = gae_lambda,
      .clip_range = clip_range,
      .entropy_coefficient = ent_coef,
      .value_coefficient = vf_coef,
      .max_grad_norm = source_max_grad_norm,
  };
}

std::string CollectionOptions::file_name(const EnvironmentOptions& environment) const {
  return fmt::format("history_{}_{}_alg-seed{}.hdf5", environment.family_name(), alg, alg_seed);
}

int64_t CollectionOptions::threads() const {
  return n_process.value_or(usable_cores());
}

}  // namespace adtrain
