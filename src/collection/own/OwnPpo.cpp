#include "collection/own/OwnPpo.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "base/Finite.h"
#include "collection/Advantages.h"
#include "collection/Divergence.h"
#include "collection/Minibatches.h"
#include "collection/own/SeededEnvironments.h"

namespace adtrain {
namespace {

std::span<float> numbers_of(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

OwnPpo::OwnPpo(WorkerPool& pool, int64_t task, const OwnPpoSettings& settings, uint64_t seed)
    : settings_(settings),
      hello_(pool.hello()),
      random_(seed_of(seed)),
      features_(hello_.observation),
      normalisation_(features_.size()),
      distribution_(hello_.action),
      networks_(settings.ppo, features_.size(), settings.units, distribution_, random_),
      actions_(static_cast<size_t>(settings.ppo.streams * distribution_.size())),
      rewards_(static_cast<size_t>(settings.ppo.streams * settings.ppo.rollout_steps)),
      values_(rewards_.size()),
      dones_(rewards_.size()),
      order_(rewards_.size()) {
  at::set_num_threads(1);
  environments_ = make_environments(pool, task, settings.ppo.streams, seed);
  std::iota(order_.begin(), order_.end(), 0);
  const auto count = static_cast<int64_t>(order_.size());
  samples_ = {at::zeros({count, features_.size()}), at::zeros({count, distribution_.size()}),
              at::zeros({count}), at::zeros({count}), at::zeros({count})};
}

std::optional<OwnPpo::Learnt> OwnPpo::learn(const std::function<bool()>& stop) {
  TaskRecorder recorder(hello_.observation, hello_.action, settings_.kept_streams,
                        settings_.ppo.history_steps());
  for (rollout_ = 0; rollout_ < settings_.ppo.rollouts(); ++rollout_) {
    if (stop && stop()) return std::nullopt;
    if (rollout_ > 0) update();  // what the last rollout taught would show in no history
    collect_rollout(recorder);
  }
  const std::optional<double> final_return = recorder.final_return();
  return Learnt{recorder.take(), final_return};
}

void OwnPpo::collect_rollout(TaskRecorder& recorder) {
  const c10::NoGradGuard no_gradients;
  const int64_t streams = settings_.ppo.streams;
  for (int64_t step = 0; step < settings_.ppo.rollout_steps; ++step) {
    recorder.observe(environments_->observations());
    act(step);
    environments_->begin_step();
    environments_->finish_step();
    recorder.step(environments_->actions(), environments_->rewards(), environments_->ended(),
                  environments_->terminated());
    const std::span<float> rewards =
        std::span(rewards_).subspan(static_cast<size_t>(step * streams), static_cast<size_t>(streams));
    std::ranges::transform(environments_->rewards(), rewards.begin(),
                           [](double reward) { return static_cast<float>(reward); });
    std::ranges::copy(environments_->ended(), dones_.begin() + step * streams);
    value_cut_off_episodes(rewards);
  }
  estimate();
}

/// Draws an action in every stream; stores what the update needs.
void OwnPpo::act(int64_t step) {
  const int64_t streams = settings_.ppo.streams, first = step * streams;
  const at::Tensor features = features_of(environments_->observations(), /*learn_from_them=*/true);
  const PolicyAndValue::Outputs outputs = networks_.evaluate(features);
  distribution_.draw(outputs.policy, networks_.log_deviations(), random_, actions_);
  distribution_.write(actions_, environments_->actions());
  const at::Tensor actions = at::from_blob(actions_.data(), {streams, distribution_.size()}, at::kFloat);
  samples_.features.narrow(0, first, streams).copy_(features);
  samples_.actions.narrow(0, first, streams).copy_(actions);
  samples_.log_probabilities.narrow(0, first, streams)
      .copy_(distribution_.log_probabilities(outputs.policy, networks_.log_deviations(), actions));
  const at::Tensor values = outputs.values.contiguous();
  std::ranges::copy(numbers_of(values), values_.begin() + first);
  check_finite(step);
}

/// Before the actions are played: an environment is not to blame for what it makes of a NaN.
void OwnPpo::check_finite(int64_t step) const {
  const int64_t streams = settings_.ppo.streams;
  const std::string found =
      !all_finite(actions_) ? "actions"
      : !all_finite(numbers_of(samples_.log_probabilities.narrow(0, step * streams, streams)))
          ? "probabilities of actions"
      : !all_finite(
            std::span(values_).subspan(static_cast<size_t>(step * streams), static_cast<size_t>(streams)))
          ? "values of observations"
          : "";
  if (found.empty()) return;
  throw_diverged(environments_->task_text(0), rollout_ * settings_.ppo.rollout_steps + step, rollout_, found,
                 settings_.ppo.learning_rate);
}

at::Tensor OwnPpo::features_of(std::span<const std::byte> observations, bool learn_from_them) {
  const size_t row_bytes = size_of(hello_.observation.type) * static_cast<size_t>(hello_.observation.size());
  const at::Tensor features =
      at::empty({static_cast<int64_t>(observations.size() / row_bytes), features_.size()}, at::kFloat);
  features_.write(observations, numbers_of(features));
  if (!settings_.normalize_observations) return features;
  if (learn_from_them) normalisation_.observe(numbers_of(features));
  normalisation_.apply(numbers_of(features));
  return features;
}

void OwnPpo::value_cut_off_episodes(std::span<float> rewards) {
  const std::span<const std::byte> last = environments_->final_observations();
  const size_t row_bytes = last.size() / rewards.size();
  std::vector<size_t> cut_off;
  std::vector<std::byte> observations;
  for (size_t stream = 0; stream < rewards.size(); ++stream) {
    if (environments_->ended()[stream] == 0 || environments_->terminated()[stream] != 0) continue;
    cut_off.push_back(stream);
    const auto row = last.subspan(stream * row_bytes, row_bytes);
    observations.insert(observations.end(), row.begin(), row.end());
  }
  if (cut_off.empty()) return;
  const at::Tensor values =
      networks_.evaluate(features_of(observations, /*learn_from_them=*/false)).values.contiguous();
  for (size_t i = 0; i < cut_off.size(); ++i)
    rewards[cut_off[i]] += static_cast<float>(settings_.ppo.discount) * numbers_of(values)[i];
}

void OwnPpo::estimate() {
  const at::Tensor last_values =
      networks_.evaluate(features_of(environments_->observations(), /*learn_from_them=*/false))
          .values.contiguous();
  estimate_advantages(rewards_, values_, dones_, numbers_of(last_values),
                      static_cast<float>(settings_.ppo.discount),
                      static_cast<float>(settings_.ppo.gae_lambda), numbers_of(samples_.advantages),
                      numbers_of(samples_.targets));
}

void OwnPpo::update() {
  for_each_minibatch(settings_.ppo, order_, random_, [this](std::span<const int32_t> minibatch) {
    const at::Tensor samples = at::empty({std::ssize(minibatch)}, at::kLong);
    std::ranges::copy(minibatch, samples.mutable_data_ptr<int64_t>());
    networks_.update(samples_, samples);
  });
}

}  // namespace adtrain
