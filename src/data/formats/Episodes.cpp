#include "data/formats/Episodes.h"

#include <algorithm>

namespace adtrain {

EpisodeEnds::EpisodeEnds(const HistoryWindow& steps) : end_(steps.find(ColumnKind::kEnds)) {
  if (end_ == nullptr) {
    end_ = steps.find(ColumnKind::kTerminations);
    cut_ = steps.find(ColumnKind::kTruncations);
  }
  if (end_ == nullptr && cut_ == nullptr) numbers_ = steps.find(ColumnKind::kStepNumbers);
}

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
  const EpisodeEnds told(window);
  for (int64_t step = 0; step < window.steps; ++step, ++position_) {
    if (steps_ > 0 && told.begins(step)) finish(position_ - 1, found);
    return_ += rewards.number(step);
    ++steps_;
    if (told.ends(step)) finish(position_, found);
  }
}

void EpisodeFinder::finish(int64_t last_step, std::vector<Episode>& found) {
  found.push_back({last_step, steps_, return_});
  steps_ = 0;
  return_ = 0;
}

}  // namespace adtrain
