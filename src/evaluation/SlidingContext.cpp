#include "evaluation/SlidingContext.h"

#include <algorithm>

namespace adtrain {
namespace {

constexpr int64_t kColumnsOfAStep = 2;  ///< a transition and the query

}  // namespace

SlidingContext::SlidingContext(int64_t rows, int64_t n_transit, const RollingPredictors& kept)
    : slides_(kept && kept.slides),
      rolling_(kept ? kept.begin() : nullptr),
      window_(rows, slides_ ? kColumnsOfAStep : n_transit) {}

at::Tensor SlidingContext::ask(const Predictor& predict, std::span<const int32_t> states) {
  for (int64_t row = 0; row < window_.rows(); ++row) window_.put_state(row, length_, states);
  if (!rolling_) return predict(window_.first(length_ + 1)).actions;
  const int64_t newest = std::min(length_ + 1, kColumnsOfAStep);
  return rolling_(window_.columns(length_ + 1 - newest, newest)).actions;
}

void SlidingContext::append(const StepOfRows& step) {
  for (int64_t row = 0; row < window_.rows(); ++row) window_.put(row, length_, step);
  if (length_ + 1 < window_.capacity()) {
    ++length_;
  } else {
    if (!slides_) rolling_ = nullptr;  // all tokens get other positions
    for (int64_t row = 0; row < window_.rows(); ++row) window_.drop_front(row, 1);
  }
}

}  // namespace adtrain
