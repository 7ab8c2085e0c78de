#include "training/Trainer.h"

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/Gpu.h"
#include "collectives/SingleCommunicator.h"
#include "collectives/StopRequest.h"
#include "data/HistorySet.h"
#include "data/TransitionWindows.h"
#include "support/TemporaryFolder.h"
#include "telemetry/MetricsFile.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Remembers what it was given.
struct RecordingKeeper final : StepKeeper {
  std::vector<int64_t> given, left_with;
  std::vector<double> best;  ///< returns that it was told
  std::optional<int64_t> safe;
  std::function<bool()> after_step = [] { return false; };  ///< also whether it wants the step
  bool fails = false;

  void save(const Snapshot& snapshot, bool leaving) override {
    for (const auto* tensors : {&snapshot.model, &snapshot.optimizer}) {
      for (const NamedTensor& named : *tensors) {
        EXPECT_TRUE(at::isfinite(named.tensor).all().item<bool>()) << named.name;
      }
    }
    given.push_back(snapshot.step);
    if (leaving) left_with.push_back(snapshot.step);
    if (!fails) safe = snapshot.step;
  }
  void measured(int64_t step, const ReturnFigures& figures) override {
    EXPECT_EQ(step, given.back());
    best.push_back(figures.held_out->last_ten);
  }
  bool wants_step() override { return after_step(); }
  std::optional<int64_t> safe_step() const override { return safe; }
};

/// Remembers the newest saved step of each measurement.
struct RecordingMeter final : ReturnMeter {
  explicit RecordingMeter(const RecordingKeeper& saved_by) : keeper(saved_by) {}
  std::optional<ReturnFigures> measure() override {
    measured.push_back(keeper.given.back());
    if (stops) std::raise(SIGTERM);
    if (stops || measured.size() == 2) return std::nullopt;
    return ReturnFigures{.held_out = ContextReturns{.last_ten = static_cast<double>(measured.size())},
                         .trained = {}};
  }
  const RecordingKeeper& keeper;
  std::vector<int64_t> measured;
  bool stops = false;  ///< the run is asked to stop while it measures
};

/// Windows of others, as far as the held-out loss reads them.
struct WatchedWindows final : BatchAssembler {
  explicit WatchedWindows(const BatchAssembler& others) : windows(others) {}
  int64_t samples() const override { return windows.samples(); }
  Batch assemble(std::span<const int64_t> samples) const override {
    when_read();
    return windows.assemble(samples);
  }
  int64_t bytes() const override { return 0; }
  std::string description() const override { return windows.description(); }

  const BatchAssembler& windows;
  std::function<void()> when_read = [] {};
};

/// A small run.
struct Subject {
  /// `records`: the held-out loss, of the windows that it trains on, and all figures, into `folder`.
  explicit Subject(const TrainingOptions& training, at::Device device = at::kCPU, bool records = false)
      : histories(HistorySet::random(5, 200, {9, 5}, 1)),
        windows(histories, {.steps = 200, .horizon = 20, .length = 8}),
        communicator(device),
        model(created(training, device)),
        log(console, records ? std::optional(paths_in(folder.path())) : std::nullopt),
        trainer(training, {}, {},
                {.model = *model,
                 .communicator = communicator,
                 .training_windows = windows,
                 .held_out_windows = records ? &held_out : nullptr,
                 .keeper = keeper,
                 .log = log,
                 .origin = {},
                 .profiles = folder.path(),
                 .returns = &meter}) {
    trainer.start_from(nullptr);
  }

  static std::unique_ptr<AlgorithmDistillation> created(const TrainingOptions& training, at::Device device) {
    ModelOptions options;
    options.tf_n_embd = 8;
    options.tf_n_layer = 1;
    options.tf_n_head = 2;
    options.tf_n_inner = 16;
    options.n_transit = 8;
    auto model = AlgorithmDistillation::create(options, {}, 3);
    model->parameters().to(device, training.compute_type(device));
    return model;
  }

  static TrainingLog::Paths paths_in(const std::filesystem::path& folder) {
    return {.metrics = folder / "metrics.jsonl", .tensorboard = folder, .loss_curve = folder / "loss"};
  }

  /// All parameters get this value once `step` steps are done.
  void spoil_after(int64_t step, float value) {
    keeper.after_step = [this, step, value, done = int64_t{0}]() mutable {
      if (++done != step) return false;
      model->parameters().flat().detach().fill_(value);
      model->parameters().refresh();
      return false;
    };
  }

  std::string failure() {
    try {
      trainer.run(StopRequest());
      return "none";
    } catch (const NonFiniteError& error) {
      return error.what();
    }
  }

  HistorySet histories;
  TransitionWindows windows;
  WatchedWindows held_out{windows};
  SingleCommunicator communicator;
  std::unique_ptr<AlgorithmDistillation> model;
  RecordingKeeper keeper;
  RecordingMeter meter{keeper};
  Console console{{.enabled = false}};
  TemporaryFolder folder;
  TrainingLog log;
  Trainer trainer;
};

TrainingOptions options_of(int64_t steps, int64_t ckpt_interval) {
  TrainingOptions options;
  options.train_timesteps = steps;
  options.train_batch_size = 4;
  options.ckpt_interval = ckpt_interval;
  options.summary_interval = 100;
  return options;
}

TEST(Trainer, GivesTheKeeperEachDueStepAndTheLast) {
  Subject subject(options_of(7, 3));
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished);
  EXPECT_THAT(subject.keeper.given, ElementsAre(3, 6, 7));
  EXPECT_THAT(subject.keeper.left_with, ElementsAre(7));
}

TEST(Trainer, MeasuresReturnsAfterTheSaveOfEachDueStepAndOfTheLast) {
  TrainingOptions options = options_of(11, 2);
  options.returns.interval = 4;
  Subject subject(options);
  subject.trainer.run(StopRequest(), 4);
  EXPECT_THAT(subject.meter.measured, IsEmpty()) << "it is left there, and measures when it goes on";
  subject.trainer.run(StopRequest());
  EXPECT_THAT(subject.meter.measured, ElementsAre(4, 8, 11));
  EXPECT_THAT(subject.keeper.best, ElementsAre(1, 3)) << "the second measurement was given up";

  Subject silent(options_of(4, 2));
  silent.trainer.run(StopRequest());
  EXPECT_THAT(silent.meter.measured, IsEmpty());
}

TEST(Trainer, SavesEachStepThatIsMeasured) {
  TrainingOptions options = options_of(8, 5);
  options.returns.interval = 3;
  Subject subject(options);
  subject.trainer.run(StopRequest());
  EXPECT_THAT(subject.keeper.given, ElementsAre(3, 5, 6, 8));
  EXPECT_THAT(subject.meter.measured, ElementsAre(3, 6, 8));
}

TEST(Trainer, ARunThatIsAskedToStopIsSavedAndNotMeasured) {
  TrainingOptions options = options_of(11, 2);
  options.returns.interval = 2;
  Subject subject(options);
  subject.keeper.after_step = [] {
    std::raise(SIGTERM);  // at step 1, to be agreed upon at step 2, which is due
    return false;
  };
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped);
  EXPECT_THAT(subject.keeper.left_with, ElementsAre(2));
  EXPECT_THAT(subject.meter.measured, IsEmpty());
}

TEST(Trainer, AMeasurementThatIsCutShortIsMadeUpForWhenTheRunGoesOn) {
  TrainingOptions options = options_of(8, 3);
  options.returns.interval = 4;
  Subject subject(options);
  subject.meter.stops = true;
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped);
  EXPECT_EQ(subject.trainer.progress().step, 4) << "another step would leave the one that is due";
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped) << "and is cut short again";
  EXPECT_THAT(subject.keeper.given, ElementsAre(3, 4));
  subject.meter.stops = false;
  subject.meter.measured = {0, 0};
  EXPECT_EQ(subject.trainer.run(StopRequest(), 6), Trainer::End::kStopped);
  EXPECT_THAT(subject.meter.measured, ElementsAre(0, 0, 4));

  subject.meter.stops = true;
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished);
  subject.meter.stops = false;
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished)
      << "of a run that has done all steps, too";
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished);
  EXPECT_THAT(subject.meter.measured, ElementsAre(0, 0, 4, 8, 8)) << "and not once it is known";
}

TEST(Trainer, AHeldOutLossThatIsDueAtAStopIsMeasuredWhenTheRunGoesOn) {
  TrainingOptions options = options_of(6, 6);
  options.eval_interval = 2;
  Subject subject(options, at::kCPU, /*records=*/true);
  const auto measured = [&] { return read_metrics(subject.folder.path() / "metrics.jsonl")["test_loss"].x; };
  subject.keeper.after_step = [] {
    std::raise(SIGTERM);  // at step 1, to be agreed upon at step 2, which is due
    return false;
  };
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped);
  EXPECT_THAT(subject.keeper.left_with, ElementsAre(2));
  EXPECT_THAT(measured(), IsEmpty());
  subject.keeper.after_step = [] { return false; };
  subject.trainer.run(StopRequest(), 3);
  EXPECT_THAT(measured(), ElementsAre(2));
  subject.trainer.run(StopRequest());
  EXPECT_THAT(measured(), ElementsAre(2, 4, 6));
  subject.trainer.run(StopRequest());
  EXPECT_THAT(measured(), ElementsAre(2, 4, 6)) << "and not once it is known";
}

TEST(Trainer, NoHeldOutLossIsBegunAfterTheStepAtWhichTheRunIsToStop) {
  TrainingOptions options = options_of(7, 100);
  options.eval_interval = 2;
  Subject subject(options, at::kCPU, /*records=*/true);
  const auto measured = [&] { return read_metrics(subject.folder.path() / "metrics.jsonl")["test_loss"].x; };
  EXPECT_EQ(subject.trainer.run(StopRequest(), 3), Trainer::End::kStopped);
  EXPECT_THAT(measured(), ElementsAre(2)) << "after step 3 none is due";
  EXPECT_EQ(subject.trainer.run(StopRequest(), 4), Trainer::End::kStopped);
  EXPECT_THAT(measured(), ElementsAre(2)) << "after step 4 one is, for when the run goes on";
  EXPECT_THAT(subject.keeper.left_with, ElementsAre(3, 4));
  EXPECT_EQ(subject.trainer.run(StopRequest(), 7), Trainer::End::kFinished);
  EXPECT_THAT(measured(), ElementsAre(2, 4, 6, 7)) << "a run that is done has the last one";
}

TEST(Trainer, AStopCutsTheHeldOutLossShortAndSavesItsStep) {
  TrainingOptions options = options_of(6, 100);
  options.eval_interval = 2;
  options.test_batch_size = 8;  // many passes
  Subject subject(options, at::kCPU, /*records=*/true);
  const auto measured = [&] { return read_metrics(subject.folder.path() / "metrics.jsonl")["test_loss"].x; };
  int64_t passes = 0;
  subject.held_out.when_read = [&] {
    if (++passes == 3) std::raise(SIGTERM);
  };
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped);
  EXPECT_EQ(passes, 3);
  EXPECT_THAT(subject.keeper.left_with, ElementsAre(2)) << "saved, although no checkpoint was due";
  EXPECT_THAT(measured(), IsEmpty());
  EXPECT_EQ(subject.trainer.run(StopRequest(), 5), Trainer::End::kStopped);
  EXPECT_THAT(measured(), ElementsAre(2, 4));
  EXPECT_EQ(passes, 3 + 2 * ((subject.windows.samples() + 7) / 8));

  for (int again = 0; again < 2; ++again) {  // after the last step, and where that is made up for
    passes = 0;
    EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished) << "all steps are done and saved";
    EXPECT_EQ(passes, 3);
    EXPECT_THAT(measured(), ElementsAre(2, 4));
  }
  passes = 3;
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished);
  EXPECT_THAT(measured(), ElementsAre(2, 4, 6));
}

TEST(Trainer, AMeasurementThatIsCutShortEndsAProfile) {
  TrainingOptions options = options_of(8, 3);
  options.returns.interval = 4;
  options.profile.steps = "3-7";
  Subject subject(options);
  subject.meter.stops = true;
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kStopped);
  const std::string report = read_file(subject.folder.path() / "steps_3-4.txt");
  EXPECT_THAT(report, HasSubstr("profile of steps 3-4: rank 0"));
}

TEST(Trainer, GivesItAgainWhatCouldNotBeSavedWhenItAsks) {
  Subject subject(options_of(8, 3));
  subject.keeper.fails = true;
  subject.keeper.after_step = [&] { return subject.keeper.given.size() == 1; };
  EXPECT_EQ(subject.trainer.run(StopRequest()), Trainer::End::kFinished);
  EXPECT_THAT(subject.keeper.given, ElementsAre(3, 4, 6, 8));
}

TEST(Trainer, EndsWithWhatTheKeeperThrows) {
  Subject subject(options_of(8, 3));
  subject.keeper.after_step = []() -> bool { throw ConfigError("the folder is another's"); };
  EXPECT_THROW(subject.trainer.run(StopRequest()), ConfigError);
  EXPECT_THAT(subject.keeper.given, IsEmpty());
}

TEST(Trainer, NothingThatIsNotFiniteReachesTheKeeper) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Subject subject(options_of(50, 5));
    subject.spoil_after(7, value);
    EXPECT_THAT(subject.failure(), AllOf(HasSubstr("at step 10"), HasSubstr("Step 5 is saved"),
                                         HasSubstr("--resume"), HasSubstr("lr")));
    EXPECT_THAT(subject.keeper.given, ElementsAre(5));
  }
}

TEST(Trainer, BeforeTheFirstSaveTheAdviceIsToStartAgain) {
  Subject subject(options_of(50, 5));
  subject.spoil_after(2, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(subject.failure(),
              AllOf(HasSubstr("No step is saved yet"), HasSubstr("--overwrite"), Not(HasSubstr("--resume"))));
  EXPECT_THAT(subject.keeper.given, IsEmpty());
}

/// What an interval's report finds before the next save is due.
TEST(Trainer, AReportEndsTheRunToo) {
  TrainingOptions options = options_of(50, 40);
  options.summary_interval = 5;
  Subject subject(options);
  subject.spoil_after(7, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(subject.failure(), AllOf(HasSubstr("at step 10"), HasSubstr("the loss")));
}

class GpuTrainer : public testing::Test {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  }
  /// fp16 with figures after every fifth step.
  static TrainingOptions half(int64_t steps) {
    TrainingOptions options = options_of(steps, 1000);
    options.mixed_precision = Precision::kFloat16;
    options.summary_interval = 5;
    return options;
  }
};

TEST_F(GpuTrainer, OneOverflowInFp16EndsNothing) {
  Subject subject(half(30), at::Device(at::kCUDA, 0));
  at::Tensor low_precision = subject.model->parameters().low_precision();
  subject.keeper.after_step = [&, done = 0]() mutable {
    // What the forward pass of one step reads: the step is skipped, and the parameters are as they were.
    if (++done == 12) low_precision.detach().fill_(std::numeric_limits<float>::infinity());
    if (done == 13) subject.model->parameters().refresh();
    return false;
  };
  EXPECT_EQ(subject.failure(), "none");
  EXPECT_THAT(subject.keeper.given, ElementsAre(30));
}

/// What the parts name is what has been added to the GPU since the program began; `other` was there before,
/// or is code of kernels that were loaded since.
TEST_F(GpuTrainer, ThePartsOfItsMemoryAreThoseThatTheDriverReports) {
  const at::Device gpu(at::kCUDA, 0);
  Subject subject(half(30), gpu);
  EXPECT_EQ(subject.failure(), "none");
  const RankMemory memory = subject.trainer.memory();
  const auto driver = static_cast<double>(MemoryMeter(gpu, std::nullopt, 1).now().in_use);
  EXPECT_NEAR(static_cast<double>(memory.split.total()), driver, 0.02 * driver);
  EXPECT_EQ(memory.split.parameters, subject.model->parameters().bytes());
  EXPECT_GT(memory.split.activations, 0);
  EXPECT_GT(memory.split.histories, 0);
  EXPECT_NEAR(static_cast<double>(memory.split.other), static_cast<double>(bytes_outside_allocator(gpu)),
              0.02 * driver)
      << "but for the graph, which is small here";
}

TEST_F(GpuTrainer, ADivergedFp16RunEnds) {
  Subject subject(half(200), at::Device(at::kCUDA, 0));
  subject.spoil_after(12, std::numeric_limits<float>::infinity());
  EXPECT_THAT(subject.failure(), HasSubstr("fp16 overflows in every step"));
  EXPECT_THAT(subject.keeper.given, IsEmpty());
}

}  // namespace
}  // namespace adtrain
