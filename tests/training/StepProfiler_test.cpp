#include "training/StepProfiler.h"

#include <algorithm>
#include <functional>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "collectives/SingleCommunicator.h"
#include "support/TemporaryFolder.h"
#include "telemetry/profile/Gzip.h"

namespace adtrain {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// What a run does around its steps.
class SteppedRun {
 public:
  void take(const ProfileOptions& options, int64_t first, int64_t last) {
    SingleCommunicator communicator;
    Console console{{.enabled = false}};
    TrainingLog log(console, std::nullopt);
    StepProfiler profiler(options, communicator, log, folder());
    for (int64_t step = first; step <= last; ++step) {
      profiler.begin_step(step);
      for (int i = 0; i < 20; ++i) matrix_ = matrix_.mm(matrix_).tanh();
      profiler.end_step(step, /*leaving=*/step == last);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // work that is of no step
      profiler.write(step == last);
    }
  }

  std::filesystem::path folder() const { return folder_.path() / "profile"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(folder())) return names;
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  nlohmann::json json(const std::string& name) const {
    return nlohmann::json::parse(read_file(folder() / name));
  }

 private:
  TemporaryFolder folder_;
  at::Tensor matrix_ = at::full({150, 150}, 0.01);
};

TEST(StepProfiler, WritesTheStepsThatWereAskedFor) {
  SteppedRun run;
  run.take({.steps = "3-5"}, 1, 9);
  EXPECT_THAT(run.files(),
              testing::ElementsAre("steps_3-5.json", "steps_3-5.trace.json.gz", "steps_3-5.txt"));
  const auto rank = run.json("steps_3-5.json").at("ranks").at(0);
  ASSERT_EQ(rank.at("steps").size(), 3U);
  EXPECT_EQ(rank.at("steps")[0].at("step"), 3);
  // Which operator takes longest is the machine's business: one may be interrupted. The order is not.
  const auto& table = rank.at("table");
  EXPECT_TRUE(std::ranges::is_sorted(table, std::greater<>(), [](const auto& row) {
    return row.at("total_ns").template get<int64_t>();
  })) << table;
  const auto product =
      std::ranges::find_if(table, [](const auto& row) { return row.at("name") == "aten::mm"; });
  ASSERT_NE(product, table.end()) << table;
  EXPECT_EQ(product->at("calls"), 60);
  EXPECT_EQ(rank.at("left_out"), 0);
  const std::string trace = gunzipped(read_file(run.folder() / "steps_3-5.trace.json.gz"));
  EXPECT_EQ(nlohmann::json::parse(trace).at("traceEvents").size(),
            rank.at("events").get<size_t>() + 3 + 2 + 7);  // steps, what is between them, rows, the end
  EXPECT_THAT(read_file(run.folder() / "steps_3-5.txt"), HasSubstr("profile of steps 3-5: rank 0"));
}

/// The time of steps, by events, and the wall's, by another clock.
TEST(StepProfiler, PartsOfAStepSumToIt) {
  SteppedRun run;
  run.take({.steps = "2-6"}, 1, 6);
  const auto rank = run.json("steps_2-6.json").at("ranks").at(0);
  double parts = 0;
  for (const auto& [name, ns] : rank.at("parts_ns").items()) parts += ns.get<double>() / 1e9;
  const double wall = rank.at("wall_seconds"), between = rank.at("between_seconds");
  EXPECT_GT(between, 4 * 0.005);
  EXPECT_NEAR(parts, wall - between, 0.02 * wall);
  EXPECT_GT(rank.at("parts_ns").at("computing").get<double>() / 1e9, 0.5 * parts);
}

TEST(StepProfiler, WritesWhatItHasWhereTheRunEnds) {
  SteppedRun run;
  run.take({.steps = "3-50"}, 1, 4);
  EXPECT_THAT(run.files(), testing::Contains("steps_3-4.txt"));
  run.take({.steps = "3-50"}, 5, 6);  // resumed
  EXPECT_THAT(run.files(), testing::Contains("steps_5-6.txt"));
}

TEST(StepProfiler, DoesNothingInOtherSteps) {
  SteppedRun run;
  run.take({.steps = "3-5"}, 6, 9);
  run.take({.steps = "30"}, 1, 4);
  run.take({}, 1, 4);
  EXPECT_THAT(run.files(), IsEmpty());
}

TEST(StepProfiler, AFullDiskEndsNoRun) {
  SteppedRun run;
  write_file_atomically(run.folder(), "a file where the folder is to be");
  EXPECT_NO_THROW(run.take({.steps = "1"}, 1, 2));
}

TEST(StepProfiler, RefusesRanksThatTheRunDoesNotHave) {
  SteppedRun run;
  EXPECT_THROW(run.take({.steps = "1", .ranks = "1"}, 1, 2), ConfigError);
}

}  // namespace
}  // namespace adtrain
