#pragma once

#include <cstdint>
#include <optional>

namespace adtrain {

/// What a task's histories earn at their end, for expert-score and least_final_return: the mean return of the
/// episodes that end in the last tenth of a history, as `inspect histories` shows it; where none does, of the
/// last whole episode of each. Parts of episodes do not count.
class LateReturns {
 public:
  /// Of histories of `steps` each.
  explicit LateReturns(int64_t steps) : steps_(steps) {}

  /// The next step of a history, from its first to its last. Then the next history begins.
  void add(double reward, bool ends) {
    constexpr int64_t kParts = 10;
    earned_ += reward;
    if (ends) {
      last_ = earned_;
      has_ended_ = true;
      if (step_ >= steps_ - steps_ / kParts) {
        of_last_tenth_ += earned_;
        ++episodes_;
      }
      earned_ = 0;
    }
    if (++step_ == steps_) finish_history();
  }

  /// Nothing where no episode ends.
  std::optional<double> mean() const {
    if (episodes_ > 0) return of_last_tenth_ / static_cast<double>(episodes_);
    if (histories_ > 0) return of_last_episodes_ / static_cast<double>(histories_);
    return std::nullopt;
  }

 private:
  void finish_history() {
    if (has_ended_) {
      of_last_episodes_ += last_;
      ++histories_;
    }
    step_ = 0;
    earned_ = 0;
    has_ended_ = false;
  }

  int64_t steps_;
  int64_t step_ = 0;
  double earned_ = 0;       ///< in the open episode
  double last_ = 0;         ///< in the last one that has ended
  bool has_ended_ = false;  ///< whether one has
  double of_last_tenth_ = 0, of_last_episodes_ = 0;
  int64_t episodes_ = 0, histories_ = 0;  ///< whose returns these are
};

}  // namespace adtrain
