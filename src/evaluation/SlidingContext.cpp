#include "evaluation/SlidingContext.h"

namespace adtrain {

SlidingContext::SlidingContext(int64_t rows, int64_t n_transit) : window_(rows, n_transit) {}

at::Tensor SlidingContext::ask(const Predictor& predict, std::span<const int32_t> states) {
  for (int64_t row = 0; row < window_.rows(); ++row) window_.put_state(row, length_, states);
  return predict(window_.first(length_ + 1)).actions;
}

void SlidingContext::append(const StepOfRows& step) {
  for (int64_t row = 0; row < window_.rows(); ++row) window_.put(row, length_, step);
  if (length_ + 1 < window_.capacity()) {
    ++length_;
  } else {
    for (int64_t row = 0; row < window_.rows(); ++row) window_.drop_front(row, 1);
  }
}

}  // namespace adtrain
