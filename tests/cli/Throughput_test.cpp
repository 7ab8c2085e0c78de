#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "base/Gpu.h"
#include "support/Python.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// Real processes of a tiny model on the CPU: what is checked is that each row is what it says, not its
/// speed.
TEST(Throughput, ARunIsMeasuredRowByRow) {
  const SmallRun run;
  ASSERT_EQ(run.collect().exit_code, 0);
  const Finished trained = run.adtrain(
      "small.yaml --set tf_n_layer=4 --set train_timesteps=4 --set num_warmup_steps=1 --set ckpt_interval=4");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string measure =
      "throughput runs/small --seconds 0.2 --batch 4 --nproc 2 --set score_tasks=all ";
  const Finished finished = run.adtrain(
      measure + "--rows sequential,batched,ranks,processes,device_map,int4 --set max_samples=500 " +
      "--set load_in_4bits=true");
  EXPECT_EQ(finished.exit_code, 2) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("load_in_4bits"));
  const Finished own_batch = run.adtrain(measure + "--set batch_size=8");
  EXPECT_EQ(own_batch.exit_code, 2) << own_batch.output;
  EXPECT_THAT(own_batch.output, HasSubstr("--set batch_size=8: each row has a batch of its own; expected "
                                          "--batch N"));
  const Finished own_folder = run.adtrain(measure + "--set output_dir=there");
  EXPECT_EQ(own_folder.exit_code, 2) << own_folder.output;
  EXPECT_THAT(own_folder.output, HasSubstr("expected --output DIR for the table"));

  const Finished table = run.adtrain(measure + "--rows sequential,batched,ranks,processes,device_map --json");
  ASSERT_EQ(table.exit_code, 0) << table.output;
  const std::string written = run.read("runs/small/throughput/throughput.json");
  EXPECT_THAT(table.output, AllOf(HasSubstr(written), HasSubstr("speed-up"), HasSubstr("2 processes")));
  EXPECT_EQ(json::parse(written)["settings"], json({"score_tasks=all"}));
  EXPECT_EQ(json::parse(written)["histories"], json::array()) << "the run's own";
  const json rows = json::parse(written)["rows"];
  ASSERT_EQ(rows.size(), 5U);
  const int64_t batches[] = {1, 4, 16, 16, 16}, processes[] = {1, 1, 2, 2, 1};
  for (size_t i = 0; i < rows.size(); ++i) {
    const json& row = rows[i];
    ASSERT_EQ(row["status"], "measured") << row.dump(2) << table.output;
    EXPECT_EQ(row["measured"]["batch"], batches[i]) << row["row"];
    EXPECT_EQ(row["measured"]["processes"], processes[i]) << row["row"];
    EXPECT_GT(row["measured"]["samples"], 0) << row["row"];
    EXPECT_GE(row["measured"]["seconds"], 0.2) << row["row"];
    EXPECT_LT(row["measured"]["seconds"], 20) << row["row"];
    EXPECT_GT(row["memory_peak_bytes"], 10 << 20) << row["row"];
  }
  EXPECT_DOUBLE_EQ(rows[0]["speed_up"], 1);
  EXPECT_THAT(run.read("runs/small/throughput/throughput.svg"), HasSubstr("<svg"));
  EXPECT_THAT(run.read("runs/small/throughput/logs/device_map.log"), HasSubstr("2 stages, logical devices"));
  EXPECT_THAT(run.read("runs/small/throughput/logs/processes-1.log"), HasSubstr("shard 1/2"));
  EXPECT_FALSE(std::filesystem::exists(run.run() / "throughput" / "work"));
  EXPECT_FALSE(std::filesystem::exists(run.run() / "scores"));

  // A row that fails says why, and the others are measured.
  const Finished again = run.adtrain(measure + "--rows sequential");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("--overwrite"));
  const Finished partly = run.adtrain(
      measure + "--rows sequential,device_map --overwrite --set device_map='{embeddings: 0, blocks: 1}'");
  EXPECT_EQ(partly.exit_code, 0) << partly.output;
  EXPECT_THAT(partly.output, HasSubstr("your map: failed: device_map: found no device for"));
  const json failed = json::parse(run.read("runs/small/throughput/throughput.json"))["rows"][1];
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_THAT(failed["because"], HasSubstr("found no device for"));

  // Its table has no picture, not even that of the table before. The limits say how many devices there are.
  const Finished none = run.adtrain(
      measure + "--rows device_map --overwrite --set max_memory='{0: 1KB, 1: 1KB, 2: 1KB, 3: 0}'");
  EXPECT_EQ(none.exit_code, 2) << none.output;
  EXPECT_THAT(none.output, HasSubstr("map, 3 devices: failed: "));
  for (const char* const picture : {"throughput.svg", "throughput.png"})
    EXPECT_FALSE(std::filesystem::exists(run.run() / "throughput" / picture)) << picture;

  // Nor is a table replaced that another command has written meanwhile.
  const Finished late = run.shell(
      std::string(kAwait) +
      "$adtrain throughput runs/small --seconds 3 --set score_tasks=all --rows sequential --output late & "
      "all=$!; await test -s late/logs/sequential.log; echo other > late/throughput.json; wait $all; "
      "echo code $?");
  EXPECT_THAT(late.output, AllOf(HasSubstr("late holds a throughput table already"), HasSubstr("code 2")));
  EXPECT_EQ(run.read("late/throughput.json"), "other\n");

  // A request to stop ends it, and leaves no process; a table without a row would be in the way.
  const Finished stopped = run.shell(
      std::string(kAwait) +
      "$adtrain throughput runs/small --seconds 60 --rows sequential,batched --output stopped & all=$!; "
      "await test -s stopped/logs/sequential.log; kill -TERM $all; wait $all; echo code $?");
  EXPECT_THAT(stopped.output, AllOf(HasSubstr("stopped before a row was measured"), HasSubstr("code 75")));
  EXPECT_FALSE(std::filesystem::exists(run.folder() / "stopped/throughput.json"));
}

/// A run that scores at once.
class BesidePyTorch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run.collect().exit_code, 0);
    const Finished trained =
        run.adtrain("small.yaml --set train_timesteps=2 --set num_warmup_steps=1 --set ckpt_interval=2");
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
  }
  Finished measured(const std::string& rows, const std::string& python) const {
    return run.adtrain(
        "throughput runs/small --seconds 0.2 --batch 4 --set score_tasks=all --set device=cpu --rows " +
        rows + " --python " + quoted(python));
  }
  const SmallRun run;
};

/// By the real packages.
TEST_F(BesidePyTorch, ItsRowsAreMeasuredWhereThatPythonHasThePackages) {
  for (const char* const package : {"torch", "bitsandbytes"}) {
    if (!has_python_package(package)) GTEST_SKIP() << "no " << package << " in " << ADTRAIN_PYTHON;
  }
  const Finished table =
      measured("sequential,pytorch,accelerate,bitsandbytes_8bit,bitsandbytes_4bit", ADTRAIN_PYTHON);
  ASSERT_EQ(table.exit_code, 0) << table.output;
  const json rows = json::parse(run.read("runs/small/throughput/throughput.json"))["rows"];
  ASSERT_EQ(rows.size(), 5U);
  for (const json& row : rows) {
    if (row["row"] == "accelerate") {
      EXPECT_EQ(row["status"], "skipped") << row;
      EXPECT_EQ(row["because"], "no GPU; expected 2 or more");
      continue;
    }
    ASSERT_EQ(row["status"], "measured") << row << table.output;
    EXPECT_EQ(row["measured"]["batch"], row["row"] == "sequential" ? 1 : 4);
    EXPECT_GT(row["measured"]["samples"], 0);
    EXPECT_GT(row["speed_up"], 0);
    EXPECT_EQ(row["measured"]["device"], "CPU");
  }
}

TEST_F(BesidePyTorch, APythonWithoutThePackagesIsNoFailure) {
  const std::string bare = run.folder() / "bare python";
  write_file(bare, std::string("#!/bin/sh\nexec ") + quoted(ADTRAIN_PYTHON) + " -I -S \"$@\"\n");
  std::filesystem::permissions(bare, std::filesystem::perms::owner_all);
  const Finished table = measured("sequential,pytorch", bare);
  EXPECT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output, AllOf(HasSubstr("PyTorch: skipped: "), HasSubstr("has no package torch"),
                                  HasSubstr("pip install torch")));
}

TEST_F(BesidePyTorch, WhatIsNoProgramIsOne) {
  const std::string text = run.folder() / "text";
  write_file(text, "");
  for (const std::string& python : {std::string("nopython"), text}) {
    const Finished table = measured("pytorch --overwrite", python);
    EXPECT_EQ(table.exit_code, 2) << table.output;
    EXPECT_THAT(table.output,
                HasSubstr("PyTorch: failed: --python: found '" + python + "', which cannot be started"));
  }
}

TEST(Throughput, OnGpusARowHasThoseThatItSays) {
  const int gpus = visible_gpu_count();
  if (gpus == 0) GTEST_SKIP() << "no GPU here";
  const SmallRun run;
  ASSERT_EQ(run.collect().exit_code, 0);
  ASSERT_EQ(run.adtrain("small.yaml --set tf_n_layer=8 --set device=cuda --set train_timesteps=4 --set "
                        "num_warmup_steps=1 --set ckpt_interval=4")
                .exit_code,
            0);
  const Finished table = run.adtrain(
      "throughput runs/small --seconds 1 --set score_tasks=all --set device=cuda --rows "
      "sequential,auto,bf16,ranks,processes,device_map");
  ASSERT_EQ(table.exit_code, 0) << table.output;
  const json document = json::parse(run.read("runs/small/throughput/throughput.json"));
  for (const json& row : document.at("rows")) {
    const bool takes_all = row["row"] == "ranks" || row["row"] == "processes" || row["row"] == "device_map";
    if (takes_all && gpus == 1) {
      EXPECT_EQ(row["status"], "skipped") << row;
      continue;
    }
    ASSERT_EQ(row["status"], "measured") << row << table.output;
    EXPECT_GT(row["measured"]["memory_total_bytes"], row["memory_peak_bytes"]) << row;
    if (row["row"] == "device_map") {
      EXPECT_GE(row["gpus_used"], 2) << row;
    } else {
      EXPECT_EQ(row["gpus_used"], takes_all ? gpus : 1) << row;
    }
  }
}

}  // namespace
}  // namespace adtrain
