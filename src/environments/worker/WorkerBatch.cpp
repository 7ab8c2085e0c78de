#include "environments/worker/WorkerBatch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/Text.h"
#include "environments/worker/TypedNumbers.h"
#include "environments/worker/WorkerFault.h"

namespace adtrain {
namespace {

constexpr double kLargestReward = std::numeric_limits<float>::max();

}  // namespace

WorkerBatch::WorkerBatch(Context context, std::byte* segment, const PlaceLayout& layout, size_t half,
                         std::vector<Share> shares, std::vector<PlaceOrder> places)
    : context_(context),
      segment_(segment),
      layout_(layout),
      half_(half),
      shares_(std::move(shares)),
      places_(std::move(places)),
      requests_(shares_.size()),
      check_(context.hello.observation),
      episode_(places_.size(), 1),
      episode_step_(places_.size()),
      ended_(places_.size()) {
  const auto tasks = numbers<int64_t>(PlaceArray::kTask), seeds = numbers<int64_t>(PlaceArray::kSeed);
  for (size_t i = 0; i < places_.size(); ++i) {
    tasks[i] = places_[i].task;
    seeds[i] = places_[i].seed;
  }
}

template <class Number>
std::span<Number> WorkerBatch::numbers(PlaceArray array) const {
  return {reinterpret_cast<Number*>(segment_ + layout_.offset_of(array)), places_.size()};
}

std::span<std::byte> WorkerBatch::bytes_of(PlaceArray array) const {
  return {segment_ + layout_.offset_of(array), layout_.row_bytes(array) * places_.size()};
}

std::span<const uint8_t> WorkerBatch::flags(PlaceArray array) const {
  return numbers<uint8_t>(array);
}

std::span<const double> WorkerBatch::rewards() const {
  return numbers<double>(PlaceArray::kReward);
}

void WorkerBatch::begin(WorkerMessage::Kind kind) {
  for (size_t i = 0; i < shares_.size(); ++i) requests_[i] = shares_[i].worker->ask(kind, half_);
}

void WorkerBatch::await(const std::string& doing) {
  for (size_t i = 0; i < shares_.size(); ++i) {
    const Share& share = shares_[i];
    const bool is_one = share.count == 1;
    const auto answer = share.worker->await(requests_[i], [&] {
      return fmt::format("{} {} environment{} of {}", doing, share.count, is_one ? "" : "s",
                         played_by(share));
    });
    if (!answer) continue;
    throw_fault(answer->value("fault", nlohmann::json::object()), *context_.options.env_worker,
                [&](std::optional<int64_t> place) {
                  const bool is_there = place && *place >= 0 && *place < share.count;
                  if (is_there) return where(static_cast<size_t>(share.first + *place));
                  if (is_one) return played_by(share);
                  return fmt::format("one of {} places, of {}", share.count, played_by(share));
                });
  }
}

void WorkerBatch::begin_reset() {
  begin(WorkerMessage::kReset);
}

void WorkerBatch::finish_reset() {
  await("making and resetting");
  for (size_t i = 0; i < places_.size(); ++i) check_observation(PlaceArray::kObservation, i);
}

void WorkerBatch::begin_step() {
  if (context_.options.clip_actions && context_.hello.action.kind == Space::Kind::kBox) clip_actions();
  mark_longest_episodes();
  for (int64_t& steps : episode_step_) ++steps;
  begin(WorkerMessage::kStep);
}

void WorkerBatch::clip_actions() {
  const Space& space = context_.hello.action;
  with_type(space.type, [&]<class Number>(Number*) {
    if constexpr (!std::is_same_v<Number, Half>) {
      const size_t size = space.low.size();
      Number* const numbers = reinterpret_cast<Number*>(actions().data());
      for (size_t i = 0; i < size * places_.size(); ++i) {
        const double clipped =
            std::clamp(static_cast<double>(numbers[i]), space.low[i % size], space.high[i % size]);
        numbers[i] = static_cast<Number>(clipped);
      }
    }
  });
}

void WorkerBatch::mark_longest_episodes() {
  const auto cut = numbers<uint8_t>(PlaceArray::kCut);
  for (size_t i = 0; i < places_.size(); ++i) {
    cut[i] = episode_step_[i] + 1 >= context_.options.max_episode_steps ? 1 : 0;
  }
}

void WorkerBatch::finish_step() {
  await("stepping");
  const auto terminated = flags(PlaceArray::kTerminated), truncated = flags(PlaceArray::kTruncated);
  for (size_t i = 0; i < places_.size(); ++i) {
    check_reward(i);
    ended_[i] = (terminated[i] | truncated[i]) != 0 ? 1 : 0;
    if (ended_[i] != 0) check_observation(PlaceArray::kFinalObservation, i);
    check_observation(PlaceArray::kObservation, i);
    if (ended_[i] != 0) end_episode(i);
  }
}

void WorkerBatch::end_episode(size_t place) {
  if (flags(PlaceArray::kCut)[place] != 0) {
    context_.notices.count("truncated", places_[place].task, [&] {
      return fmt::format("{}: an episode of task {} was truncated after max_episode_steps = {}",
                         *context_.options.env_worker, task_text(place), context_.options.max_episode_steps);
    });
  }
  ++episode_[place];
  episode_step_[place] = 0;
}

void WorkerBatch::check_observation(PlaceArray array, size_t place) {
  const std::byte* const row = bytes_of(array).data() + place * layout_.row_bytes(array);
  if (const auto objection = check_.objection(row)) refuse("observation", place, *objection);
  if (check_.is_within_bounds(row)) return;
  context_.notices.count("outside", places_[place].task, [&] {
    return fmt::format("{}: an observation of task {} is outside {}, its space; it is used as it is",
                       *context_.options.env_worker, task_text(place), context_.hello.observation.text());
  });
}

void WorkerBatch::check_reward(size_t place) {
  const double reward = rewards()[place];
  const bool fits = std::abs(reward) <= kLargestReward;  // NaN does not
  if (!fits) refuse("reward", place, fmt::format("{}", reward));
}

void WorkerBatch::refuse(const std::string& what, size_t place, const std::string& found) const {
  throw WorkerFault(ExitCode::kData,
                    fmt::format("{}: a wrong {} in {}: found {}; expected {}; correct the environment",
                                *context_.options.env_worker, what, where(place), found,
                                what == "reward" ? "a finite number that float32 can hold, up to 3.4e38"
                                                 : "numbers of " + context_.hello.observation.text()));
}

std::string WorkerBatch::task_text(size_t place) const {
  const int64_t task = places_[place].task;
  if (!context_.hello.tasks) return fmt::format("{}", task);
  return fmt::format("{} ({})", task, abridged((*context_.hello.tasks)[static_cast<size_t>(task)], 100));
}

std::string WorkerBatch::where(size_t place) const {
  return fmt::format("task {}, place {}, episode {}, step {}", task_text(place), place, episode_[place],
                     episode_step_[place]);
}

/// Its only place, or all its tasks and how far their episodes are.
std::string WorkerBatch::played_by(const Share& share) const {
  const auto begin = static_cast<size_t>(share.first), end = begin + static_cast<size_t>(share.count);
  if (share.count == 1) return where(begin);
  std::map<int64_t, std::string> tasks;
  for (size_t i = begin; i < end; ++i) tasks.emplace(places_[i].task, task_text(i));
  std::vector<std::string> texts;
  for (const auto& [number, text] : tasks) texts.push_back(text);
  const std::string known =
      fmt::format("{} {}", texts.size() == 1 ? "task" : "the tasks", abridged(join(texts, ", ")));
  const auto [first, last] = std::ranges::minmax(std::span(episode_step_).subspan(begin, end - begin));
  if (last == 0) return known;
  const std::string steps =
      first == last ? fmt::format("step {}", last) : fmt::format("steps {} to {}", first, last);
  return fmt::format("{}, at {} of their episodes", known, steps);
}

}  // namespace adtrain
