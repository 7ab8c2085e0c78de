#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "OnGpuStream.h"
#include "base/File.h"
#include "collectives/SingleCommunicator.h"
#include "collectives/StopRequest.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "support/TemporaryFolder.h"
#include "telemetry/profile/Gzip.h"
#include "training/Trainer.h"

namespace adtrain {
namespace {

struct ForgetfulKeeper final : StepKeeper {
  void save(const Snapshot&, bool) override {}
  void measured(int64_t, const ReturnFigures&) override {}
  bool wants_step() override { return false; }
  std::optional<int64_t> safe_step() const override { return std::nullopt; }
};

constexpr int64_t kSteps = 20;

/// A run of kSteps steps on one GPU.
class ProfiledRun {
 public:
  ProfiledRun(const std::string& steps, CudaGraphUse cuda_graph) {
    const at::Device device(at::kCUDA, 0);
    const HistorySet histories = HistorySet::random(5, 200, {9, 5}, 1);
    const TransitionWindows windows(histories, {.steps = 200, .horizon = 20, .length = 16});
    SingleCommunicator communicator(device);
    ModelOptions model_options;
    model_options.tf_n_embd = 32;
    model_options.tf_n_layer = 2;
    model_options.n_transit = 16;
    const auto model = AlgorithmDistillation::create(model_options, {}, 3);
    model->parameters().to(device, at::kFloat);
    TrainingOptions options;
    options.train_timesteps = kSteps;
    options.train_batch_size = 64;
    options.summary_interval = 5;
    options.cuda_graph = cuda_graph;
    if (!steps.empty()) options.profile.steps = steps;
    ForgetfulKeeper keeper;
    Console console{{.enabled = false}};
    TrainingLog log(console, std::nullopt);
    Trainer trainer(options, {}, {},
                    {.model = *model,
                     .communicator = communicator,
                     .training_windows = windows,
                     .held_out_windows = nullptr,
                     .keeper = keeper,
                     .log = log,
                     .origin = {},
                     .profiles = folder_.path()});
    trainer.start_from(nullptr);
    trainer.run(StopRequest());
    parameters = model->parameters().flat().cpu();
    if (steps.empty()) return;
    rank = nlohmann::json::parse(read_file(folder_.path() / ("steps_" + steps + ".json"))).at("ranks").at(0);
    trace =
        nlohmann::json::parse(gunzipped(read_file(folder_.path() / ("steps_" + steps + ".trace.json.gz"))));
  }

  /// By step: how many kernels began in it.
  std::map<int64_t, int64_t> kernels() const {
    std::map<int64_t, int64_t> counts;
    const double origin = first_start_us();
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("cat", "") != "kernel") continue;
      for (const auto& step : rank.at("steps")) {
        const double begin =
            (step.at("start_ns").get<int64_t>() - rank.at("steps")[0].at("start_ns").get<int64_t>()) / 1e3;
        const double end =
            (step.at("end_ns").get<int64_t>() - rank.at("steps")[0].at("start_ns").get<int64_t>()) / 1e3;
        const double at = event.at("ts").get<double>() - origin;
        if (begin <= at && at < end) ++counts[step.at("step")];
      }
    }
    return counts;
  }

  nlohmann::json rank, trace;
  at::Tensor parameters;

 private:
  double first_start_us() const {
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("cat", "") == "step" && event.at("name") != "between steps") return event.at("ts");
    }
    return 0;
  }

  TemporaryFolder folder_;
};

void expect_whole(const ProfiledRun& run, int64_t first, int64_t last) {
  ASSERT_TRUE(run.rank.at("on_gpu").get<bool>()) << "CUPTI has recorded nothing";
  double parts = 0;
  for (const auto& [name, ns] : run.rank.at("parts_ns").items()) parts += ns.get<double>() / 1e9;
  const double wall = run.rank.at("wall_seconds"), between = run.rank.at("between_seconds");
  EXPECT_NEAR(parts, wall - between, 0.02 * wall);
  const std::map<int64_t, int64_t> kernels = run.kernels();
  for (int64_t step = first; step <= last; ++step) {
    ASSERT_TRUE(kernels.contains(step)) << step;
    EXPECT_GT(kernels.at(step), 10) << "step " << step;
  }
  // Steps alike have the same kernels, so none is lost, and none is counted to another step.
  EXPECT_EQ(kernels.at(last), kernels.at(last - 1));
  for (const auto& step : run.rank.at("steps")) {
    EXPECT_GT(step.at("parts_ns").at("computing"), 0) << step.at("step");
  }
  EXPECT_GT(run.rank.at("table").size(), 5U);
}

class GpuProfile : public OnGpuStream {};

TEST_F(GpuProfile, HasTheKernelsOfReplayedSteps) {
  expect_whole(ProfiledRun("12-18", CudaGraphUse::kOn), 12, 18);
}

TEST_F(GpuProfile, HasTheKernelsOfEagerSteps) {
  expect_whole(ProfiledRun("12-18", CudaGraphUse::kOff), 12, 18);
}

/// The step is captured while the recording is under way.
TEST_F(GpuProfile, GoesOnWhileAStepIsCaptured) {
  expect_whole(ProfiledRun("2-9", CudaGraphUse::kOn), 2, 9);
}

TEST_F(GpuProfile, ChangesNoResult) {
  const ProfiledRun plain("", CudaGraphUse::kOn), profiled("2-9", CudaGraphUse::kOn);
  EXPECT_LT((plain.parameters - profiled.parameters).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace adtrain
