#include "evaluation/spaces/SpaceContext.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "data/TensorType.h"

namespace adtrain {
namespace {

constexpr int64_t kWindowsOfRoom = 2;

at::Tensor zeros_of(const Space& space, int64_t rows, int64_t capacity) {
  std::vector<int64_t> shape = {rows, capacity};
  shape.insert(shape.end(), space.shape.begin(), space.shape.end());
  return at::zeros(shape, tensor_type(space.type));
}

}  // namespace

SpaceContext::SpaceContext(int64_t rows, int64_t steps, const TaskSpaces& spaces, SpaceScale scale)
    : steps_(steps), scale_(std::move(scale)) {
  const int64_t capacity = 1 + kWindowsOfRoom * steps;
  states_ = zeros_of(spaces.observation, rows, capacity);
  actions_ = zeros_of(spaces.action, rows, capacity);
  rewards_ = at::zeros({rows, capacity}, at::kFloat);
  begins_ = at::zeros({rows, capacity}, at::kByte);
}

void SpaceContext::make_room() {
  const int64_t kept = 1 + length_;
  for (at::Tensor* column : {&states_, &actions_, &rewards_, &begins_}) {
    const at::Tensor moved = column->narrow(1, first_ - 1, kept).clone();
    column->zero_();
    column->narrow(1, 0, kept).copy_(moved);
  }
  first_ = 1;
}

void SpaceContext::observe(const at::Tensor& states, const at::Tensor& begins) {
  if (length_ == steps_) {
    ++first_;
    --length_;
  }
  if (first_ + length_ == states_.size(1)) make_room();
  const int64_t column = first_ + length_++;
  states_.select(1, column).copy_(states);
  begins_.select(1, column).copy_(begins);
}

Batch SpaceContext::batch() const {
  return last(length_);
}

Batch SpaceContext::newest() const {
  return last(1);
}

Batch SpaceContext::last(int64_t count) const {
  const int64_t begin = first_ + length_ - count;
  Batch batch;
  batch.states = states_.narrow(1, begin, count);
  batch.actions = actions_.narrow(1, begin, count);
  batch.rewards = rewards_.narrow(1, begin, count);
  batch.begins = begins_.narrow(1, begin, count);
  batch.before_action = actions_.select(1, begin - 1);
  batch.before_reward = rewards_.select(1, begin - 1);
  batch.state_mean = scale_.state_mean;
  batch.state_deviation = scale_.state_deviation;
  return batch;
}

void SpaceContext::complete(const at::Tensor& actions, const at::Tensor& rewards) {
  const int64_t column = first_ + length_ - 1;
  actions_.select(1, column).copy_(actions);
  const at::Tensor seen = rewards.to(at::kFloat);
  rewards_.select(1, column).copy_(scale_.reward.defined() ? seen * scale_.reward : seen);
}

}  // namespace adtrain
