#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "evaluation/Context.h"

namespace adtrain {

/// The last n_transit − 1 transitions, across episodes, then the query. Rows grow together, and until the
/// window is full a sequence has only the transitions so far, beginning with the query alone. A row that is
/// emptied grows anew from there; rows of equal length are asked together.
class SlidingContext final : public Context {
 public:
  /// `kept`: how keys and values of the rows are kept. `forget_unrewarded`: a row is emptied where an episode
  /// ends, no transition in it has a reward, and at least so many episodes in succession had none; not for
  /// rows that slide.
  SlidingContext(int64_t rows, int64_t n_transit, const RollingPredictors& kept = {},
                 std::optional<int64_t> forget_unrewarded = std::nullopt);

  at::Tensor ask(const Predictor& predict, std::span<const int32_t> states) override;
  Latest latest(int64_t columns) const override;
  void append(const StepOfRows& step) override;

 private:
  struct Row {
    int64_t length = 0;               ///< transitions in the window; the query follows them
    int64_t steps_unrewarded = 0;     ///< since the last reward, or since the row was empty
    int64_t episodes_unrewarded = 0;  ///< that ended since then, without the one that had the reward
  };

  void remember(int64_t row, const StepOfRows& step);
  void forget_if_unrewarded(int64_t row, bool rewarded, bool ended);

  bool slides_;            ///< keys and values of what has left the rows below are kept
  Predictor rolling_;      ///< where keys and values are kept; null where the window is shown
  TransitionRows window_;  ///< of rows that slide the newest transition and the query alone
  std::optional<int64_t> forget_unrewarded_;
  std::vector<Row> rows_;
};

}  // namespace adtrain
