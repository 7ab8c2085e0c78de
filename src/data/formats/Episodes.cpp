#include "data/formats/Episodes.h"

#include <algorithm>

namespace adtrain {

ColumnKinds EpisodeFinder::columns() {
  return {ColumnKind::kRewards, ColumnKind::kEnds, ColumnKind::kTerminations, ColumnKind::kTruncations,
          ColumnKind::kStepNumbers};
}

bool EpisodeFinder::can_tell(const std::vector<ColumnType>& columns) {
  return std::ranges::any_of(columns, [](const ColumnType& column) {
    return column.kind == ColumnKind::kEnds || column.kind == ColumnKind::kTerminations ||
           column.kind == ColumnKind::kTruncations || column.kind == ColumnKind::kStepNumbers;
  });
}

void EpisodeFinder::add(const HistoryWindow& window, std::vector<Episode>& found) {
  const Column& rewards = *window.find(ColumnKind::kRewards);
  const Column* end = window.find(ColumnKind::kEnds);
  const Column* cut = nullptr;
  if (end == nullptr) {
    end = window.find(ColumnKind::kTerminations);
    cut = window.find(ColumnKind::kTruncations);
  }
  const Column* const numbers =
      end == nullptr && cut == nullptr ? window.find(ColumnKind::kStepNumbers) : nullptr;
  for (int64_t step = 0; step < window.steps; ++step, ++position_) {
    if (numbers != nullptr && steps_ > 0 && numbers->number(step) == 0) finish(position_ - 1, found);
    return_ += rewards.number(step);
    ++steps_;
    const bool ends =
        (end != nullptr && end->number(step) != 0) || (cut != nullptr && cut->number(step) != 0);
    if (ends) finish(position_, found);
  }
}

void EpisodeFinder::finish(int64_t last_step, std::vector<Episode>& found) {
  found.push_back({last_step, steps_, return_});
  steps_ = 0;
  return_ = 0;
}

}  // namespace adtrain
