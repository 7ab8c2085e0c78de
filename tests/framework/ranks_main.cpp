// Runs its tests inside every rank of whatever launcher started it:
//   framework_ranks cpu | cuda           tests; with one GPU a rank (skipped where there are fewer)
//   framework_ranks cpu throws | dies    the last rank fails while the others wait for it; the file `failure`
//   framework_ranks cpu stops            all end as on request

#include <csignal>
#include <iostream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "adtrain/adtrain.h"
#include "base/Gpu.h"
#include "framework/TestedGroup.h"

namespace adtrain {
namespace {

ProcessGroup* the_group = nullptr;

/// Prints failures alone, with the rank: the full account of rank 0 is enough.
class FailurePrinter final : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::cout << "rank " << group().rank() << ": failed at "
              << (result.file_name() != nullptr ? result.file_name() : "?") << ":" << result.line_number()
              << "\n"
              << result.message() << std::endl;
  }
};

int run_tests(ProcessGroup& group) {
  the_group = &group;
  if (group.is_root()) {
    std::cout << group.world_size() << " ranks over " << group.backend() << ": " << group.launch().evidence
              << std::endl;
  } else {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  return RUN_ALL_TESTS();
}

int end(ProcessGroup& group, const std::string& how) {
  if (how == "stops") return kExitRequeue;
  if (group.rank() == group.world_size() - 1) {
    if (how == "throws") throw std::runtime_error("the last rank finds no data");
    std::raise(SIGKILL);
  }
  group.barrier();
  return 0;
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string device = argc > 1 ? argv[1] : "cpu", how = argc > 2 ? argv[2] : "";
  if (device == "cuda" && visible_gpu_count() < LaunchInfo::detect().local_world_size) {
    std::cout << "skipped: no GPU for each rank" << std::endl;
    return 0;
  }
  LaunchOptions options;
  options.compute = device == "cuda" ? Compute::kCuda : Compute::kCpu;
  options.rendezvous_timeout_seconds = options.collective_timeout_seconds = 60;
  if (!how.empty()) options.failure_file = "failure";
  return run_ranks([&](ProcessGroup& group) { return how.empty() ? run_tests(group) : end(group, how); },
                   options);
}

}  // namespace

ProcessGroup& group() {
  return *the_group;
}

}  // namespace adtrain

int main(int argc, char** argv) {
  return adtrain::run(argc, argv);
}
