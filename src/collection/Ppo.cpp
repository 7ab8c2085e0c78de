#include "collection/Ppo.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "collection/Advantages.h"
#include "collection/Divergence.h"
#include "collection/Minibatches.h"

namespace adtrain {
namespace {

int32_t draw(const std::array<float, kActions>& probabilities, RandomStream& random) {
  float left = random.uniform();
  int32_t action = 0;
  while (action + 1 < kActions && left >= probabilities[static_cast<size_t>(action)]) {
    left -= probabilities[static_cast<size_t>(action++)];
  }
  return action;
}

}  // namespace

Ppo::Ppo(const TaskFamily& family, int64_t task, const PpoSettings& settings, uint64_t seed)
    : task_(task),
      settings_(settings),
      grid_size_(static_cast<int32_t>(family.grid_size())),
      environments_(family, std::vector<int64_t>(static_cast<size_t>(settings.streams), task)),
      random_(seed_of(seed)),
      networks_(settings, family.grid_size(), random_),
      opinions_(static_cast<size_t>(grid_size_ * grid_size_)),
      states_(static_cast<size_t>(settings.streams)),
      actions_(states_.size()),
      order_(states_.size() * static_cast<size_t>(settings.rollout_steps)) {
  samples_.resize(order_.size());
  rewards_.resize(order_.size());
  values_.resize(order_.size());
  dones_.resize(order_.size());
  std::iota(order_.begin(), order_.end(), 0);
}

std::optional<History> Ppo::learn(bool terminal_next_states, const std::function<bool()>& stop) {
  History history;
  history.steps = settings_.history_steps();
  history.streams = settings_.streams;
  for (rollout_ = 0; rollout_ < settings_.rollouts(); ++rollout_) {
    if (stop && stop()) return std::nullopt;
    if (rollout_ > 0) update();  // what the last rollout taught would show in no history
    collect_rollout(terminal_next_states, history);
  }
  return history;
}

void Ppo::collect_rollout(bool terminal_next_states, History& history) {
  const size_t streams = states_.size();
  const auto append = [](auto& array, const auto& values) {
    array.insert(array.end(), values.begin(), values.end());
  };
  for (size_t offset = 0; offset < order_.size(); offset += streams) {
    append(history.states, environments_.states());
    act(offset);
    append(history.actions, actions_);
    environments_.step(actions_);
    append(history.rewards, environments_.rewards());
    append(history.next_states, terminal_next_states ? environments_.next_states() : environments_.states());
    history.dones.insert(history.dones.end(), streams, environments_.done() ? 1 : 0);
    std::copy(environments_.rewards().begin(), environments_.rewards().end(), &rewards_[offset]);
    std::fill_n(&dones_[offset], streams, environments_.done() ? 1 : 0);
  }
  know_states();
  std::vector<float> last_values;
  for (const int32_t state : states_) last_values.push_back(opinions_[static_cast<size_t>(state)].value);
  estimate_advantages(rewards_, values_, dones_, last_values, static_cast<float>(settings_.discount),
                      static_cast<float>(settings_.gae_lambda), samples_.advantages, samples_.targets);
}

/// Draws an action in every stream; stores what the update needs.
void Ppo::act(size_t offset) {
  know_states();
  for (size_t stream = 0; stream < states_.size(); ++stream) {
    const Opinion& opinion = opinions_[static_cast<size_t>(states_[stream])];
    actions_[stream] = draw(opinion.probabilities, random_);
    samples_.states[offset + stream] = states_[stream];
    samples_.actions[offset + stream] = actions_[stream];
    samples_.probabilities[offset + stream] = opinion.probabilities[static_cast<size_t>(actions_[stream])];
    values_[offset + stream] = opinion.value;
  }
}

/// Indexes the streams' current states and evaluates the networks on those that are new in this rollout.
void Ppo::know_states() {
  std::vector<int32_t> unknown;
  for (size_t stream = 0; stream < states_.size(); ++stream) {
    states_[stream] =
        environments_.states()[2 * stream] * grid_size_ + environments_.states()[2 * stream + 1];
    Opinion& opinion = opinions_[static_cast<size_t>(states_[stream])];
    if (opinion.rollout == rollout_) continue;
    opinion.rollout = rollout_;
    unknown.push_back(states_[stream]);
  }
  if (unknown.empty()) return;
  networks_.evaluate(unknown);
  for (size_t i = 0; i < unknown.size(); ++i) {
    Opinion& opinion = opinions_[static_cast<size_t>(unknown[i])];
    opinion.probabilities = networks_.probabilities(i);
    opinion.value = networks_.value(i);
    if (!are_sound(opinion.probabilities, opinion.value)) {
      throw_diverged(std::to_string(task_), rollout_ * settings_.rollout_steps, rollout_, kOpinions,
                     settings_.learning_rate);
    }
  }
}

void Ppo::update() {
  for_each_minibatch(settings_, order_, random_,
                     [this](std::span<const int32_t> minibatch) { networks_.update(samples_, minibatch); });
}

uint64_t seed_of_policy(const CollectionOptions& options, const TaskFamily& family, int64_t task,
                        int64_t policy) {
  return static_cast<uint64_t>(options.alg_seed + task + policy * family.task_count());
}

void mark_rollouts(History& history, int64_t rollout_steps) {
  history.compress_markers.assign(history.actions.size(), 0);
  for (int64_t first = 0; first < history.steps; first += rollout_steps) {
    std::fill_n(&history.compress_markers[history.at(first, 0)], history.streams, 1);
    std::fill_n(&history.compress_markers[history.at(first + rollout_steps - 1, 0)], history.streams, 2);
  }
}

}  // namespace adtrain
