// Runs its tests inside every rank of whatever launcher started it, or, as
//   collective_ranks --cuda
// with one GPU a rank and NCCL (exit code 77 where there are fewer GPUs than ranks), or, as
//   collective_ranks --last-rank=sleeps | dies
// lets the last rank stay away from a barrier or end without a word; the others must then end with
// PeerLostError's code.

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "collectives/ranks/Ranks.h"

namespace adtrain {

Ranks& ranks() {
  static Ranks ranks;
  return ranks;
}

namespace {

/// Prints failures alone, with the rank: the full account of rank 0 is enough.
class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override { test_ = test.name(); }
  // GoogleTest holds its lock here: whoever asked it for the test at hand would wait for ever.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    fmt::print("rank {}: {} failed at {}:{}\n{}\n", ranks().communicator->rank(), test_,
               result.file_name() != nullptr ? result.file_name() : "?", result.line_number(),
               result.message());
    std::fflush(stdout);
  }

  std::string test_ = "?";
};

int run_tests() {
  if (!ranks().communicator->is_root()) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  return RUN_ALL_TESTS();
}

int lose_last_rank(const std::string& how) {
  Communicator& communicator = *ranks().communicator;
  if (communicator.rank() == communicator.world_size() - 1) {
    if (how == "throws") throw DataError("the last rank finds no data");
    if (how == "aborts") communicator.abort(ExitCode::kNonFinite);
    if (how == "dies") std::raise(SIGKILL);
    std::this_thread::sleep_for(std::chrono::seconds(60));
  }
  communicator.barrier();
  return 0;
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string argument = argc > 1 ? argv[1] : "";
  const std::string flag = "--last-rank=";
  const bool loses = argument.rfind(flag, 0) == 0;
  const LaunchContext context = LaunchContext::detect();
  DistributedOptions options;
  options.rendezvous_timeout_seconds = 60;
  options.collective_timeout_seconds = argument == flag + "sleeps" ? 1 : 60;

  const bool on_gpus = argument == "--cuda";
  if (on_gpus && visible_gpu_count() < context.local_world_size) {
    fmt::print("skipped: {} ranks need a GPU each, and {} are visible\n", context.local_world_size,
               visible_gpu_count());
    return 77;
  }
  const at::Device device(on_gpus ? at::kCUDA : at::kCPU,
                          static_cast<int8_t>(on_gpus ? context.local_rank : -1));
  if (on_gpus) c10::cuda::set_device(device.index());
  const std::unique_ptr<Communicator> communicator =
      Communicator::extend(Communicator::create(context, options), device, options);
  ranks() = {context, communicator.get(), device};
  if (context.is_root()) {
    fmt::print("{} ranks over {}: {}\n", context.world_size, communicator->backend(), context.evidence);
  }
  return loses ? lose_last_rank(argument.substr(flag.size())) : run_tests();
}

}  // namespace
}  // namespace adtrain

int main(int argc, char** argv) {
  try {
    return adtrain::run(argc, argv);
  } catch (const adtrain::Error& error) {
    fmt::print(stderr, "rank {}: {}\n", adtrain::ranks().context.rank, error.what());
    return static_cast<int>(error.exit_code());
  }
}
