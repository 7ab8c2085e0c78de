#include "collection/own/TaskRecorder.h"

#include <cstring>
#include <utility>

namespace adtrain {
namespace {

/// Places of the columns, in the order of ColumnKind.
enum Place : size_t {
  kObservationColumn,
  kActionColumn,
  kRewardColumn,
  kTerminationColumn,
  kTruncationColumn
};

}  // namespace

TaskRecorder::TaskRecorder(const Space& observation, const Space& action, int64_t streams, int64_t steps) {
  recorded_.streams = streams;
  recorded_.steps = steps;
  recorded_.columns = {{{ColumnKind::kObservations, observation.type, observation.shape}, {}},
                       {{ColumnKind::kActions, action.type, action.shape}, {}},
                       {{ColumnKind::kRewards, ElementType::kFloat32, {}}, {}},
                       {{ColumnKind::kTerminations, ElementType::kBool, {}}, {}},
                       {{ColumnKind::kTruncations, ElementType::kBool, {}}, {}}};
  for (Column& column : recorded_.columns)
    column.bytes.resize(column.type.row_bytes() * static_cast<size_t>(streams * steps));
}

void TaskRecorder::put(size_t index, std::span<const std::byte> rows) {
  Column& column = recorded_.columns[index];
  const size_t bytes = column.type.row_bytes();
  for (int64_t stream = 0; stream < recorded_.streams; ++stream) {
    std::memcpy(column.bytes.data() + static_cast<size_t>(stream * recorded_.steps + step_) * bytes,
                rows.data() + static_cast<size_t>(stream) * bytes, bytes);
  }
}

template <class Number>
void TaskRecorder::put_number(size_t index, size_t stream, Number number) {
  const size_t row = stream * static_cast<size_t>(recorded_.steps) + static_cast<size_t>(step_);
  std::memcpy(recorded_.columns[index].bytes.data() + row * sizeof number, &number, sizeof number);
}

void TaskRecorder::observe(std::span<const std::byte> observations) {
  put(kObservationColumn, observations);
}

void TaskRecorder::step(std::span<const std::byte> actions, std::span<const double> rewards,
                        std::span<const uint8_t> ended, std::span<const uint8_t> terminated) {
  put(kActionColumn, actions);
  for (size_t stream = 0; stream < static_cast<size_t>(recorded_.streams); ++stream) {
    const bool cut_off = ended[stream] != 0 && terminated[stream] == 0;
    put_number(kRewardColumn, stream, static_cast<float>(rewards[stream]));
    put_number(kTerminationColumn, stream, static_cast<uint8_t>(terminated[stream] != 0));
    put_number(kTruncationColumn, stream, static_cast<uint8_t>(cut_off));
  }
  ++step_;
}

double TaskRecorder::final_return() const {
  constexpr int64_t kParts = 10;
  const std::vector<Column>& columns = recorded_.columns;
  double all = 0, of_last = 0;
  int64_t episodes = 0;
  for (int64_t stream = 0; stream < recorded_.streams; ++stream) {
    double earned = 0;
    for (int64_t step = 0; step < recorded_.steps; ++step) {
      const int64_t row = stream * recorded_.steps + step;
      const double reward = columns[kRewardColumn].number(row);
      earned += reward;
      all += reward;
      if (columns[kTerminationColumn].number(row) + columns[kTruncationColumn].number(row) == 0) continue;
      if (step >= recorded_.steps - recorded_.steps / kParts) {
        of_last += earned;
        ++episodes;
      }
      earned = 0;
    }
  }
  return episodes > 0 ? of_last / static_cast<double>(episodes)
                      : all / static_cast<double>(recorded_.streams);
}

RecordedTask TaskRecorder::take() {
  return std::move(recorded_);
}

}  // namespace adtrain
