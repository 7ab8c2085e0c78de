#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "Weights.h"
#include "base/Gpu.h"

namespace adtrain {
namespace {

/// Whole steps on several GPUs over NCCL, eager and captured, beside those of one.
class GpuRanks : public testing::Test {
 protected:
  void SetUp() override {
    if (visible_gpu_count() < 2) GTEST_SKIP() << "no GPU for each of two ranks here";
    const Finished collected = small_.collect();
    ASSERT_EQ(collected.exit_code, 0) << collected.output;
  }

  static std::string settings(const std::string& name, const std::string& more) {
    return "small.yaml --set device=cuda --set tf32=false --set run_name=" + name + " " + more;
  }
  std::string file_of(const std::string& name) const {
    return "runs/" + name + "/checkpoints/step-20/model.safetensors";
  }

  SmallRun small_;
};

TEST_F(GpuRanks, TrainToTheParametersOfOneGpu) {
  const Finished alone = small_.adtrain(settings("one", "--set cuda_graph=off"));
  ASSERT_EQ(alone.exit_code, 0) << alone.output;
  for (const std::string graph : {"off", "on"}) {
    for (const std::string accumulation : {"1", "2"}) {
      const std::string name = graph + accumulation;
      const std::string more =
          "--set cuda_graph=" + graph + " --set gradient_accumulation_steps=" + accumulation;
      const Finished under_mpirun = small_.mpirun(2, settings("mpi" + name, more));
      ASSERT_EQ(under_mpirun.exit_code, 0) << under_mpirun.output;
      EXPECT_LT(largest_difference(small_, "one", "mpi" + name), 2e-4)
          << "mpirun, cuda_graph " << graph << ", accumulation " << accumulation;
      const Finished under_torchrun = small_.torchrun(2, settings("torch" + name, more));
      ASSERT_EQ(under_torchrun.exit_code, 0) << under_torchrun.output;
      EXPECT_LT(largest_difference(small_, "one", "torch" + name), 2e-4)
          << "torchrun, cuda_graph " << graph << ", accumulation " << accumulation;
    }
  }
  // The comparison can fail: another seed ends elsewhere.
  const Finished other = small_.adtrain(settings("other", "--set seed=7"));
  ASSERT_EQ(other.exit_code, 0) << other.output;
  EXPECT_GT(largest_difference(small_, "one", "other"), 1e-2);
}

TEST_F(GpuRanks, ResumeBitForBit) {
  const std::string steps = "--set tf_dropout=0.1 --set ckpt_interval=5";
  const Finished whole = small_.mpirun(2, settings("whole", steps));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const Finished stopped = small_.mpirun(2, settings("parts", steps + " --stop-after 10"));
  ASSERT_EQ(stopped.exit_code, 75) << stopped.output;
  const Finished resumed = small_.mpirun(2, settings("parts", steps + " --resume"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(small_.read(file_of("whole")), small_.read(file_of("parts")));
}

/// With in-context returns in between, which are measured with whole fp32 weights; ranks receive 16-bit ones.
TEST_F(GpuRanks, ShardTheOptimizer) {
  for (const std::string precision : {"no", "bf16", "fp16"}) {
    const std::string more = "--set mixed_precision=" + precision +
                             " --set ckpt_interval=10 --set return_interval=10 --set return_episodes=2 "
                             "--set first_bucket_megabytes=0.0005 --set bucket_megabytes=0.01 ";
    const std::string shards = more + "--set shard_optimizer=true ";
    const Finished whole = small_.mpirun(2, settings("whole-" + precision, more));
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    const Finished sharded = small_.mpirun(2, settings("sharded-" + precision, shards));
    ASSERT_EQ(sharded.exit_code, 0) << sharded.output;
    EXPECT_LT(largest_difference(small_, "whole-" + precision, "sharded-" + precision),
              precision == "no" ? 2e-4 : 5e-3);
    ASSERT_EQ(small_.mpirun(2, settings("parts-" + precision, shards + "--stop-after 10")).exit_code, 75);
    ASSERT_EQ(small_.mpirun(2, settings("parts-" + precision, shards + "--resume")).exit_code, 0);
    EXPECT_EQ(small_.state("parts-" + precision, 20), small_.state("sharded-" + precision, 20));
    const auto bytes = [&](const std::string& run, size_t rank) {
      return small_.metrics(run, "memory_parts")
          .back()
          .at("memory_parts")
          .at("moments")
          .at(rank)
          .get<int64_t>();
    };
    EXPECT_EQ(bytes("sharded-" + precision, 0) + bytes("sharded-" + precision, 1),
              bytes("whole-" + precision, 0));
  }
}

/// No rank leaves anything on a GPU of another, such as a CUDA context, which takes half a gigabyte.
TEST_F(GpuRanks, TakeMemoryOfTheirOwnGpuOnly) {
  const Finished finished = small_.mpirun(2, settings("own", "--set summary_interval=20"));
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  std::istringstream lines(small_.read("runs/own/metrics.jsonl"));
  nlohmann::json parts;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("memory_parts")) parts = record.at("memory_parts");
  }
  constexpr double kMostOfADifference = 200e6;
  EXPECT_NEAR(parts.at("other")[0].get<double>(), parts.at("other")[1].get<double>(), kMostOfADifference);
  EXPECT_GT(parts.at("communication")[0], 0);
}

/// A rank that lacks the memory to capture ends no run: all ranks go on eagerly, with the same arithmetic.
TEST_F(GpuRanks, GoOnEagerlyWhereOneCannotCapture) {
  for (const std::string histories : {"on", "off"}) {
    const std::string more = "--set tf_dropout=0.1 --set histories_on_gpu=" + histories;
    const Finished eager = small_.mpirun(2, settings("eager" + histories, more + " --set cuda_graph=off"));
    ASSERT_EQ(eager.exit_code, 0) << eager.output;
    // The fourth step is the one that is captured.
    setenv("ADTRAIN_FAULT", "out_of_memory:capture@1:4", 1);
    const Finished gave_up = small_.mpirun(2, settings("fallen" + histories, more));
    const Finished insisted =
        small_.mpirun(2, settings("insisted" + histories, more + " --set cuda_graph=on"));
    unsetenv("ADTRAIN_FAULT");
    ASSERT_EQ(gave_up.exit_code, 0) << gave_up.output;
    EXPECT_THAT(gave_up.output, testing::HasSubstr("the memory of 1 of 2 GPUs does not suffice"));
    EXPECT_EQ(small_.read(file_of("eager" + histories)), small_.read(file_of("fallen" + histories)));
    EXPECT_EQ(insisted.exit_code, 8) << insisted.output;
  }
}

}  // namespace
}  // namespace adtrain
