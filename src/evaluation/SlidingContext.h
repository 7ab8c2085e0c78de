#pragma once

#include <cstdint>

#include "evaluation/Context.h"

namespace adtrain {

/// The last n_transit − 1 transitions, across episodes, then the query. All rows grow together: until the
/// window is full the sequence has only the transitions so far, beginning with the query alone.
class SlidingContext final : public Context {
 public:
  SlidingContext(int64_t rows, int64_t n_transit, const RollingPredictors& kept = {});

  at::Tensor ask(const Predictor& predict, std::span<const int32_t> states) override;
  void append(const StepOfRows& step) override;

 private:
  bool slides_;            ///< keys and values of what has left the rows below are kept
  Predictor rolling_;      ///< where keys and values are kept; null where the window is shown
  TransitionRows window_;  ///< of rows that slide the newest transition and the query alone
  int64_t length_ = 0;     ///< transitions in the window; the query follows them
};

}  // namespace adtrain
