#include "collection/own/TaskRecorder.h"

#include <cstring>
#include <utility>

#include "data/LateReturns.h"

namespace adtrain {

TaskRecorder::TaskRecorder(const Space& observation, const Space& action, int64_t streams, int64_t steps)
    : recorded_(RecordedTask::sized({{}, observation.type, observation.shape},
                                    {{}, action.type, action.shape}, streams, steps)) {}

void TaskRecorder::put(RecordedTask::Place column, std::span<const std::byte> rows) {
  const size_t bytes = recorded_.columns[column].type.row_bytes();
  for (int64_t stream = 0; stream < recorded_.streams; ++stream) {
    std::memcpy(recorded_.row(column, stream, step_), rows.data() + static_cast<size_t>(stream) * bytes,
                bytes);
  }
}

template <class Number>
void TaskRecorder::put_number(RecordedTask::Place column, size_t stream, Number number) {
  std::memcpy(recorded_.row(column, static_cast<int64_t>(stream), step_), &number, sizeof number);
}

void TaskRecorder::observe(std::span<const std::byte> observations) {
  put(RecordedTask::kObservations, observations);
}

void TaskRecorder::step(std::span<const std::byte> actions, std::span<const double> rewards,
                        std::span<const uint8_t> ended, std::span<const uint8_t> terminated) {
  put(RecordedTask::kActions, actions);
  for (size_t stream = 0; stream < static_cast<size_t>(recorded_.streams); ++stream) {
    const bool cut_off = ended[stream] != 0 && terminated[stream] == 0;
    put_number(RecordedTask::kRewards, stream, static_cast<float>(rewards[stream]));
    put_number(RecordedTask::kTerminations, stream, static_cast<uint8_t>(terminated[stream] != 0));
    put_number(RecordedTask::kTruncations, stream, static_cast<uint8_t>(cut_off));
  }
  ++step_;
}

std::optional<double> TaskRecorder::final_return() const {
  const std::vector<Column>& columns = recorded_.columns;
  LateReturns returns(recorded_.steps);
  for (int64_t row = 0; row < recorded_.streams * recorded_.steps; ++row) {
    const bool ends = columns[RecordedTask::kTerminations].number(row) != 0 ||
                      columns[RecordedTask::kTruncations].number(row) != 0;
    returns.add(columns[RecordedTask::kRewards].number(row), ends);
  }
  return returns.mean();
}

RecordedTask TaskRecorder::take() {
  return std::move(recorded_);
}

}  // namespace adtrain
