#include "run/throughput/MeasuredScoring.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "base/Clock.h"
#include "base/Gpu.h"
#include "collectives/Agreement.h"
#include "collectives/StopRequest.h"
#include "memory/MemoryMeter.h"
#include "run/throughput/StartLine.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

bool asked_to_stop() {
  return StopRequest::signal_number() != 0;
}

/// Whether it is so on any rank. Collective.
bool on_any(Communicator& communicator, bool here) {
  at::Tensor count = at::full({1}, here ? 1 : 0, at::kLong);
  communicator.all_reduce(count, ReduceOp::kSum);
  return count.item<int64_t>() > 0;
}

int64_t largest_of_all(Communicator& communicator, int64_t here) {
  at::Tensor largest = at::full({1}, here, at::kLong);
  communicator.all_reduce(largest, ReduceOp::kMax);
  return largest.item<int64_t>();
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Of all ranks, each once.
std::vector<std::string> gpus_of_all(Communicator& communicator, const std::vector<c10::Device>& mine) {
  std::string text;
  for (const c10::Device& gpu : mine) text += visible_gpu_uuid(gpu.index()) + "\n";
  std::vector<std::string> all;
  for (const std::string& of_rank : gather_texts(communicator, text)) {
    std::istringstream lines(of_rank);
    for (std::string line; std::getline(lines, line);) {
      if (std::ranges::find(all, line) == all.end()) all.push_back(line);
    }
  }
  return all;
}

}  // namespace

double warm_up_seconds(double seconds) {
  constexpr double kShare = 0.25, kLongest = 5;
  return std::min(kShare * seconds, kLongest);
}

std::optional<int64_t> MeasuredScoring::samples_in(double seconds, const Scoring::Progress& progress) const {
  Communicator& communicator = *ranks.communicator;
  const Stopwatch watch;
  const auto is_up = [&] { return watch.seconds() >= seconds || asked_to_stop(); };
  int64_t samples = 0;
  while (true) {
    int64_t done = 0;
    scoring.run(
        batches, communicator, ranks.cpu_threads,
        [&](int64_t of_all, int64_t of) {
          done = of_all;
          progress(samples + of_all, of);
        },
        is_up);
    samples += done;
    if (on_any(communicator, asked_to_stop())) return std::nullopt;
    if (on_any(communicator, is_up())) return samples;
  }
}

std::optional<ScoringSpeed> MeasuredScoring::speed(double seconds, Console& console) const {
  Communicator& communicator = *ranks.communicator;
  std::vector<MemoryMeter> meters;
  for (const c10::Device& gpu : gpus) meters.emplace_back(gpu, std::nullopt, 1);
  if (gpus.empty()) meters.emplace_back(c10::kCPU, std::nullopt, ranks.context.local_world_size);
  for (MemoryMeter& meter : meters) meter.restart();
  const auto watch_memory = [&] {
    for (MemoryMeter& meter : meters) meter.sample();
  };

  Activity::of_this_process().begin("warming up");
  if (!samples_in(warm_up_seconds(seconds), [&](int64_t, int64_t) { watch_memory(); })) return std::nullopt;
  if (!await_start(asked_to_stop)) return std::nullopt;

  Activity::of_this_process().begin("scoring");
  ScoringSpeed speed;
  communicator.barrier();
  speed.began = now();
  std::optional<int64_t> samples;
  {
    Progress shown(console, "scoring", static_cast<int64_t>(seconds * 10), "tenths of a second");
    const Stopwatch watch;
    samples = samples_in(seconds, [&](int64_t done, int64_t) {
      watch_memory();
      const double passed = watch.seconds();
      shown.update(static_cast<int64_t>(std::min(passed, seconds) * 10),
                   fmt::format("{:.1f} samples/s", static_cast<double>(done) / std::max(passed, 1e-9)));
    });
  }
  speed.ended = now();
  if (!samples) return std::nullopt;
  speed.samples = *samples;
  speed.processes = communicator.world_size();
  speed.device = gpus.empty() ? "CPU" : meters.front().name();
  speed.gpus = gpus_of_all(communicator, gpus);
  const auto fullest = std::ranges::max_element(meters, {}, &MemoryMeter::peak);
  speed.memory_peak = largest_of_all(communicator, fullest->peak());
  speed.memory_total = largest_of_all(communicator, gpus.empty() ? 0 : fullest->now().total);
  return speed;
}

}  // namespace adtrain
