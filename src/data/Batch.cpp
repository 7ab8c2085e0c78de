#include "data/Batch.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr at::Tensor Batch::*kParts[] = {&Batch::states,         &Batch::actions,      &Batch::rewards,
                                         &Batch::next_states,    &Batch::previous,     &Batch::current,
                                         &Batch::query_state,    &Batch::query_action, &Batch::before_action,
                                         &Batch::before_reward,  &Batch::begins,       &Batch::state_mean,
                                         &Batch::state_deviation};

}  // namespace

template <class Change>
Batch Batch::changed(Change change) const {
  Batch batch;
  for (const auto part : kParts) {
    if ((this->*part).defined()) batch.*part = change(this->*part);
  }
  return batch;
}

Batch Batch::to(at::Device device, bool non_blocking) const {
  return changed([&](const at::Tensor& part) { return part.to(device, part.scalar_type(), non_blocking); });
}

Batch Batch::pinned() const {
  return changed([](const at::Tensor& part) { return part.pin_memory(); });
}

void Batch::copy_from(const Batch& other) {
  for (const auto part : kParts) {
    if ((this->*part).defined()) (this->*part).copy_(other.*part);
  }
}

}  // namespace adtrain
