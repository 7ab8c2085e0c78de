#include "data/RecordedTask.h"

#include <utility>

namespace adtrain {

RecordedTask RecordedTask::sized(ColumnType observations, ColumnType actions, int64_t streams,
                                 int64_t steps) {
  RecordedTask task;
  task.streams = streams;
  task.steps = steps;
  observations.kind = ColumnKind::kObservations;
  actions.kind = ColumnKind::kActions;
  task.columns = {{std::move(observations), {}},
                  {std::move(actions), {}},
                  {{ColumnKind::kRewards, ElementType::kFloat32, {}}, {}},
                  {{ColumnKind::kTerminations, ElementType::kBool, {}}, {}},
                  {{ColumnKind::kTruncations, ElementType::kBool, {}}, {}}};
  for (Column& column : task.columns)
    column.bytes.resize(column.type.row_bytes() * static_cast<size_t>(streams * steps));
  return task;
}

uint8_t* RecordedTask::row(Place column, int64_t stream, int64_t step) {
  Column& rows = columns[column];
  return rows.bytes.data() + static_cast<size_t>(stream * steps + step) * rows.type.row_bytes();
}

}  // namespace adtrain
