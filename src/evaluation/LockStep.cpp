#include "evaluation/LockStep.h"

#include <algorithm>
#include <utility>

namespace adtrain {

LockStep::LockStep(std::unique_ptr<Learners> learners, size_t trials)
    : learners_(std::move(learners)), earned_(trials), returns_(trials) {}

void LockStep::act(const Predictor& predict) {
  learners_->act(predict);
  is_stepping_ = true;
}

void LockStep::observe() {
  learners_->observe();
  is_stepping_ = false;
  for (size_t i = 0; i < earned_.size(); ++i) {
    earned_[i] += learners_->rewards()[i];
    if (learners_->ended()[i] != 0) returns_[i].push_back(static_cast<float>(std::exchange(earned_[i], 0.0)));
  }
}

bool LockStep::has_episode() const {
  return std::ranges::none_of(returns_, [](const std::deque<float>& ended) { return ended.empty(); });
}

void LockStep::take_episode(std::vector<float>& returns) {
  for (std::deque<float>& ended : returns_) {
    returns.push_back(ended.front());
    ended.pop_front();
  }
}

}  // namespace adtrain
