#include "kernels/DrawnSeeds.h"

#include <limits>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

namespace adtrain::kernels {
namespace {

thread_local SeedTape* recorded = nullptr;
thread_local SeedsRepeated* repeated = nullptr;

}  // namespace

at::Tensor drawn_seeds(int64_t count, const at::Tensor& like) {
  if (repeated != nullptr) return repeated->next();
  const auto seeds = at::TensorOptions(like.device()).dtype(at::kLong);
  const at::Tensor drawn = at::randint(std::numeric_limits<int64_t>::max(), {count}, seeds);
  if (recorded != nullptr) recorded->push_back(drawn);
  return drawn;
}

SeedsRecorded::SeedsRecorded(SeedTape& to) : before_(std::exchange(recorded, &to)) {}

SeedsRecorded::~SeedsRecorded() {
  recorded = before_;
}

SeedsRepeated::SeedsRepeated(const SeedTape& of) : of_(of), before_(std::exchange(repeated, this)) {}

SeedsRepeated::~SeedsRepeated() {
  repeated = before_;
}

const at::Tensor& SeedsRepeated::next() {
  if (next_ == of_.size()) throw std::logic_error("A part of the network drew more seeds when it ran again.");
  return of_[next_++];
}

}  // namespace adtrain::kernels
