// How many environment steps a second go through worker processes, and what they cost of the processor:
//   PYTHONPATH=tests/benchmark benchmark_workers PYTHON MODULE:FUNCTION [PLACES [WORKERS [SECONDS]]]

#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/Clock.h"
#include "base/Error.h"
#include "environments/worker/WorkerGrid.h"
#include "environments/worker/WorkerPool.h"

namespace adtrain {
namespace {

double cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Played {
  int64_t steps = 0;
  double wall = 0, own_cpu = 0;
};

/// Steps the halves in turn, as a rollout whose model takes no time.
Played play(const WorkerOptions& options, int64_t places, double seconds) {
  WorkerPool pool(options, {});
  std::vector<std::unique_ptr<WorkerGrid>> halves;
  for (auto& batch : pool.make(std::vector<PlaceOrder>(static_cast<size_t>(places), PlaceOrder{0, 0}))) {
    halves.push_back(std::make_unique<WorkerGrid>(std::move(batch), pool.hello()));
  }
  const std::vector<int32_t> actions(static_cast<size_t>(places), 4);
  const auto begin = [&actions](WorkerGrid& half) {
    half.begin_step(std::span(actions).first(static_cast<size_t>(half.size())));
  };
  Played played;
  const Stopwatch watch;
  const double before = cpu_seconds(RUSAGE_SELF);
  for (const auto& half : halves) begin(*half);
  while (watch.seconds() < seconds) {
    for (const auto& half : halves) {
      half->finish_step();
      played.steps += half->size();
      begin(*half);
    }
  }
  for (const auto& half : halves) half->finish_step();
  played.wall = watch.seconds();
  played.own_cpu = cpu_seconds(RUSAGE_SELF) - before;
  return played;
}

}  // namespace
}  // namespace adtrain

int main(int argc, char** argv) {
  const auto number = [&](int at, const char* otherwise) {
    return std::atoi(at < argc ? argv[at] : otherwise);
  };
  if (argc < 3) {
    fmt::print(stderr, "benchmark_workers PYTHON MODULE:FUNCTION [PLACES [WORKERS [SECONDS]]]\n");
    return 2;
  }
  adtrain::WorkerOptions options;
  options.env_python = argv[1];
  options.env_worker = argv[2];
  options.env_workers = number(4, "1");
  options.max_episode_steps = 1'000'000'000;
  try {
    const double before = adtrain::cpu_seconds(RUSAGE_CHILDREN);
    const adtrain::Played played = adtrain::play(options, number(3, "1024"), number(5, "5"));
    const double children = adtrain::cpu_seconds(RUSAGE_CHILDREN) - before;  // start and end included
    const auto steps = static_cast<double>(played.steps);
    fmt::print("{:.0f} steps/s; {:.2f} µs of this process's CPU a thousand steps, {:.2f} of the workers'\n",
               steps / played.wall, 1e9 * played.own_cpu / steps, 1e9 * children / steps);
  } catch (const adtrain::Error& error) {
    return static_cast<int>(adtrain::report_failure(error));
  }
}
