#include "memory/BatchSizeSearch.h"

#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "collectives/SingleCommunicator.h"
#include "support/FreshSeed.h"
#include "support/ShadowMemory.h"

namespace adtrain {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr int64_t kMegabyte = 1'000'000;

/// Searches of one rank on the CPU, whose trials take real memory.
class BatchSizeSearchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kShadowMemory) GTEST_SKIP() << "a sanitizer takes memory of its own";
  }

  /// `free`: what the rank may take beside what it has resident now.
  BatchSizeDecision search(int64_t free, BatchSizeOptions options,
                           const std::function<double(int64_t)>& trial) {
    MemoryMeter unlimited(at::kCPU, std::nullopt, 1);
    unlimited.restart();
    MemoryMeter meter(at::kCPU, unlimited.now().in_use + free, 1);
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    return BatchSizeSearch(alone_, meter, std::move(options)).run(trial);
  }
  /// A step that takes `bytes` for each sample.
  static double take(int64_t batch, int64_t bytes, double seconds) {
    at::ones({batch * bytes}, at::kByte);
    return seconds;
  }

  SingleCommunicator alone_;
  std::vector<std::string> lines_;
};

TEST_F(BatchSizeSearchTest, FindsWhatFitsAndTellsItAsTheGuidesDo) {
  // 0.9 · 1 GB hold 45 samples of 20 MB; what the process takes besides may cost one or two.
  const BatchSizeDecision found = search(1000 * kMegabyte, {}, [](int64_t batch) {
    return take(batch, 20 * kMegabyte, 0.01 * static_cast<double>(batch));
  });
  EXPECT_GE(found.largest, 42);
  EXPECT_LE(found.largest, 45);
  EXPECT_EQ(found.batch, found.largest * 95 / 100);
  EXPECT_TRUE(found.limited_by_memory);
  EXPECT_THAT(lines_, Contains("Found 1 CPU rank"));
  EXPECT_THAT(lines_, Contains(HasSubstr("Target memory usage (with 90.0% safety margin): ")));
  EXPECT_THAT(lines_, Contains("Power phase - Trial 1: Testing batch size 1"));
  EXPECT_THAT(lines_, Contains(HasSubstr("Batch size 1 uses 0.")));
  EXPECT_THAT(lines_, Contains(HasSubstr("Binary search phase - Trial ")));
  EXPECT_THAT(lines_, Contains(fmt::format("Found optimal batch size: {}, using {} for safety", found.largest,
                                           found.batch)));
  // Each trial's memory is what it took.
  for (const BatchSizeTrial& trial : found.trials) {
    if (!trial.fits) continue;
    EXPECT_NEAR(static_cast<double>(trial.target_bytes - trial.peak_bytes),
                static_cast<double>(900 * kMegabyte - trial.batch * 20 * kMegabyte), 40 * kMegabyte)
        << trial.batch;
  }
}

TEST_F(BatchSizeSearchTest, ARefusalIsABatchThatDoesNotFit) {
  std::mt19937 random(fresh_seed());
  for (int repeat = 0; repeat < 20; ++repeat) {
    const int64_t most = std::uniform_int_distribution<int64_t>(1, 3000)(random);
    const BatchSizeDecision found = search(1000 * kMegabyte, {.reduction = 1}, [&](int64_t batch) {
      if (batch > most) throw std::bad_alloc();
      return 0.001;
    });
    EXPECT_EQ(found.largest, std::min<int64_t>(most, 2048)) << most;
    EXPECT_EQ(found.batch, found.largest);
    EXPECT_LE(found.trials.size(), 12U + 4 + 11) << "powers, lines, halves";
  }
}

TEST_F(BatchSizeSearchTest, TriesNoMoreThanTheGivenLargest) {
  int64_t largest = 0;
  const BatchSizeDecision found = search(1000 * kMegabyte, {.largest = 100}, [&](int64_t batch) {
    largest = std::max(largest, batch);
    return 0.001;
  });
  EXPECT_EQ(largest, 100);
  EXPECT_EQ(found.batch, 100) << "memory does not limit it, so nothing is taken off";
  EXPECT_FALSE(found.limited_by_memory);
}

TEST_F(BatchSizeSearchTest, ForThroughputTheSmallestThatIsAsFast) {
  // From 16 on a step takes as long as it has samples.
  const auto trial = [](int64_t batch) { return 0.001 * static_cast<double>(std::max<int64_t>(batch, 16)); };
  const BatchSizeDecision most = search(1000 * kMegabyte, {.largest = 64}, trial);
  EXPECT_EQ(most.batch, 64);
  EXPECT_EQ(most.fastest, 16);
  const BatchSizeDecision fast =
      search(1000 * kMegabyte, {.largest = 64, .prefer = BatchSizePreference::kThroughput}, trial);
  EXPECT_EQ(fast.batch, 16);
}

TEST_F(BatchSizeSearchTest, TheResultDividesAGivenNumber) {
  const auto up_to_50 = [](int64_t batch) {
    if (batch > 50) throw std::bad_alloc();
    return 0.001;
  };
  EXPECT_EQ(search(1000 * kMegabyte, {.divides = 96}, up_to_50).batch, 32) << "of up to 47";
  EXPECT_EQ(search(1000 * kMegabyte, {.divides = 24}, up_to_50).batch, 24);
  EXPECT_EQ(search(1000 * kMegabyte, {.divides = 97}, up_to_50).batch, 1) << "a prime";
}

TEST_F(BatchSizeSearchTest, WhereNothingFitsTheErrorSaysWhat) {
  try {
    search(1000 * kMegabyte, {}, [](int64_t) -> double { throw std::bad_alloc(); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutOfMemory);
    EXPECT_THAT(error.what(), HasSubstr("not even a batch of 1 fits"));
  }
}

TEST_F(BatchSizeSearchTest, OtherErrorsLeaveIt) {
  EXPECT_THROW(search(1000 * kMegabyte, {}, [](int64_t) -> double { throw std::logic_error("a mistake"); }),
               std::logic_error);
}

TEST_F(BatchSizeSearchTest, OptionsThatMeanNothingAreRefused) {
  const auto trial = [](int64_t) { return 0.001; };
  for (const BatchSizeOptions& wrong : {BatchSizeOptions{.largest = 0},
                                        {.safety_margin = 0},
                                        {.safety_margin = 1.1},
                                        {.reduction = 2},
                                        {.divides = 0}}) {
    EXPECT_THROW(search(1000 * kMegabyte, wrong, trial), std::invalid_argument);
  }
}

TEST_F(BatchSizeSearchTest, TableAndJsonHoldEveryTrial) {
  const BatchSizeDecision found = search(1000 * kMegabyte, {.largest = 8}, [](int64_t batch) {
    if (batch > 5) throw std::bad_alloc();
    return 0.5;
  });
  const nlohmann::json json = to_json(found, 4);
  EXPECT_EQ(json.at("batch_size"), found.batch);
  EXPECT_EQ(json.at("trials").size(), found.trials.size());
  EXPECT_EQ(json.at("trials")[0].at("samples_per_second"), 8) << "of four ranks";
  const std::vector<std::string> table = table_of(found, 4);
  EXPECT_EQ(table.size(), found.trials.size() + 1);
  EXPECT_THAT(table, Contains(HasSubstr("out of memory")));
  EXPECT_THAT(table, Contains(HasSubstr("used")));
}

}  // namespace
}  // namespace adtrain
