#include "environments/worker/WorkerGrid.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "environments/worker/TypedNumbers.h"

namespace adtrain {
namespace {

constexpr size_t kCoordinates = 2;

/// Reads checked whole numbers.
void read_pairs(std::span<const std::byte> rows, ElementType type, std::vector<int32_t>& pairs) {
  with_type(type, [&]<class Number>(Number*) {
    for (size_t i = 0; i < pairs.size(); ++i) {
      pairs[i] = static_cast<int32_t>(static_cast<double>(number_at<Number>(rows.data(), i)));
    }
  });
}

}  // namespace

WorkerGrid::WorkerGrid(std::unique_ptr<WorkerBatch> batch, const WorkerHello& hello)
    : batch_(std::move(batch)),
      observation_type_(hello.observation.type),
      action_type_(hello.action.type),
      states_(kCoordinates * static_cast<size_t>(batch_->size())),
      next_states_(states_.size()) {
  read_pairs(batch_->observations(), observation_type_, states_);
}

void WorkerGrid::begin_step(std::span<const int32_t> actions) {
  const std::span<std::byte> rows = batch_->actions();
  with_type(action_type_, [&]<class Number>(Number*) {
    if constexpr (std::is_integral_v<Number>) {
      for (size_t i = 0; i < actions.size(); ++i) {
        const auto action = static_cast<Number>(actions[i]);
        std::memcpy(rows.data() + i * sizeof action, &action, sizeof action);
      }
    }
  });
  batch_->begin_step();
}

void WorkerGrid::finish_step() {
  batch_->finish_step();
  read_pairs(batch_->observations(), observation_type_, states_);
  read_pairs(batch_->final_observations(), observation_type_, next_states_);
  for (size_t i = 0; i < ended().size(); ++i) {
    if (ended()[i] == 0)
      std::copy_n(&states_[kCoordinates * i], kCoordinates, &next_states_[kCoordinates * i]);
  }
}

}  // namespace adtrain
