#include "training/ClockOffset.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "collectives/Agreement.h"
#include "telemetry/profile/EventRecorder.h"

namespace adtrain {
namespace {

constexpr int64_t kBarriers = 15;

/// The same text in all processes of one running kernel; empty where it is not to be had.
std::string boot_of_host() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

ClockOffset ClockOffset::measure(Communicator& communicator) {
  if (communicator.world_size() == 1) return {.ahead_ns = 0, .root_ns = EventRecorder::now_ns()};
  const std::string boot = boot_of_host();
  const bool same_clock = !boot.empty() && text_of_root(communicator, boot) == boot;

  at::Tensor mine = at::empty({kBarriers}, at::kLong);
  for (int64_t i = 0; i < kBarriers; ++i) {
    communicator.barrier();
    mine.mutable_data_ptr<int64_t>()[i] = EventRecorder::now_ns();
  }
  at::Tensor roots = mine.clone();
  communicator.broadcast(roots, 0);
  const int64_t *here = mine.const_data_ptr<int64_t>(), *there = roots.const_data_ptr<int64_t>();
  std::vector<int64_t> differences;
  for (int64_t i = 0; i < kBarriers; ++i) differences.push_back(here[i] - there[i]);
  std::ranges::nth_element(differences, differences.begin() + kBarriers / 2);
  return {.ahead_ns = same_clock ? 0 : differences[kBarriers / 2], .root_ns = there[kBarriers - 1]};
}

}  // namespace adtrain
