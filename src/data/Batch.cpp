#include "data/Batch.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr at::Tensor Batch::*kParts[] = {&Batch::states,          &Batch::actions,      &Batch::rewards,
                                         &Batch::next_states,     &Batch::previous,     &Batch::current,
                                         &Batch::query_state,     &Batch::query_action, &Batch::before_action,
                                         &Batch::before_reward,   &Batch::begins,       &Batch::state_mean,
                                         &Batch::state_deviation, &Batch::places,       &Batch::segment_first,
                                         &Batch::filled,          &Batch::step_targets};

/// Of a tensor in one piece of memory with others.
int64_t aligned_bytes(const at::Tensor& part) {
  constexpr int64_t kAlignment = 16;
  const int64_t bytes = part.numel() * part.element_size();
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

int64_t Batch::size() const {
  if (parts.empty()) return states.size(0);
  int64_t rows = 0;
  for (const Batch& part : parts) rows += part.size();
  return rows;
}

template <class Change>
Batch Batch::changed(Change&& change) const {
  Batch batch;
  batch.group = group;
  for (const Batch& part : parts) batch.parts.push_back(part.changed(change));
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

Batch Batch::rows(int64_t first, int64_t count) const {
  Batch of_rows = *this;
  of_rows.step_targets.reset();  // of the whole step
  of_rows = of_rows.changed([&](const at::Tensor& part) { return part.narrow(0, first, count); });
  of_rows.step_targets = step_targets;
  return of_rows;
}

int64_t Batch::bytes() const {
  int64_t total = 0;
  (void)changed([&](const at::Tensor& part) {
    total += aligned_bytes(part);
    return part;
  });
  return total;
}

Batch Batch::within(const at::Tensor& memory) const {
  int64_t first = 0;
  return changed([&](const at::Tensor& part) {
    const at::Tensor bytes = memory.narrow(0, first, part.numel() * part.element_size());
    first += aligned_bytes(part);
    return bytes.view(part.scalar_type()).view(part.sizes());
  });
}

void Batch::copy_from(const Batch& other) {
  for (const auto part : kParts) {
    if ((this->*part).defined()) (this->*part).copy_(other.*part);
  }
  for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_from(other.parts.at(i));
}

}  // namespace adtrain
