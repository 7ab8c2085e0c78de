// The main function of all tests by gtest. Tells the tests that ran from those that could not: the last line
// of the output counts the skipped ones with their reasons, as tests/could_not_run.awk reads it, and where
// every test was skipped the exit code is 77, which CTest calls "Skipped". Says the seed of a failed test.

#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/GpuLibraries.h"
#include "base/ProcessEnd.h"
#include "support/FreshSeed.h"

namespace {

constexpr int kSkipped = 77;  // as SKIP_RETURN_CODE in src/Rooms.cmake

/// Counts the tests that say that they cannot run here, by reason.
class SkipCounter final : public testing::EmptyTestEventListener {
 public:
  int skipped() const {
    int sum = 0;
    for (const auto& [reason, tests] : tests_by_reason_) sum += tests;
    return sum;
  }

  std::string reasons() const {
    std::string text;
    for (const auto& [reason, tests] : tests_by_reason_) text += (text.empty() ? "" : "; ") + reason;
    return text;
  }

 private:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    std::string reason = "no reason given";
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) reason = part.message();
    }
    ++tests_by_reason_[reason];
  }

  std::map<std::string, int> tests_by_reason_;
};

/// Says what a failed test's input followed from.
class SeedOfFailures final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::optional<uint64_t> seed = adtrain::seed_asked_for();
    if (test.result()->Failed() && seed)
      fmt::print("its random input comes again with ADTRAIN_TEST_SEED={}\n", *seed);
  }
};

}  // namespace

int main(int argc, char** argv) {
  adtrain::load_gpu_libraries();
  testing::InitGoogleMock(&argc, argv);
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  auto* const skips = new SkipCounter;  // the listeners own it
  testing::UnitTest::GetInstance()->listeners().Append(skips);
  testing::UnitTest::GetInstance()->listeners().Append(new SeedOfFailures);
  const int result = RUN_ALL_TESTS();
  if (skips->skipped() > 0) {
    fmt::print("could not run: {} of {} tests: {}\n", skips->skipped(), tests.test_to_run_count(),
               skips->reasons());
  }
  const bool all_skipped = skips->skipped() > 0 && skips->skipped() == tests.test_to_run_count();
  adtrain::end_process(result == 0 && all_skipped ? kSkipped : result);
}
