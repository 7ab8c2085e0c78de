#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "SmallRun.h"
#include "support/FullDisk.h"
#include "support/ShadowMemory.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What a user hears of a host that has too little of something: no backtrace, no request to report it.
void expect_trouble(const Finished& finished, const testing::Matcher<std::string>& message, int code = 3) {
  EXPECT_EQ(finished.exit_code, code) << finished.output;
  EXPECT_THAT(finished.output, AllOf(message, Not(HasSubstr("frame #")), Not(HasSubstr("unexpected failure")),
                                     Not(HasSubstr("report it"))));
}

/// `adtrain arguments` in the run's folder, after `preparation`.
Finished prepared(const SmallRun& small, const std::string& preparation, const std::string& arguments) {
  return run_shell("cd " + quoted(small.folder().string()) + " && " + preparation +
                   " && OMP_NUM_THREADS=1 timeout 300 " ADTRAIN_BINARY_DIR "/adtrain " + arguments);
}

/// The same where `folder` is another file system: in a mount namespace of its own.
Finished mounted(const SmallRun& small, const std::string& mount, const std::string& arguments) {
  return run_shell(
      "cd " + quoted(small.folder().string()) + " && unshare -m bash -c " +
      quoted(mount + " && OMP_NUM_THREADS=1 timeout 300 " ADTRAIN_BINARY_DIR "/adtrain " + arguments));
}

/// The same where no file grows beyond so many KiB, which stands in for a full disk.
Finished with_room_for(const SmallRun& small, int kibibytes, const std::string& arguments) {
  return run_shell("cd " + quoted(small.folder().string()) + " && " + limit_files_to(kibibytes) +
                   "OMP_NUM_THREADS=1 timeout 300 " ADTRAIN_BINARY_DIR "/adtrain " + arguments);
}

bool can_mount() {
  return run_shell("unshare -m mount -t tmpfs none /mnt").exit_code == 0;
}

TEST(HostTroubles, AModelThatMemoryDoesNotHold) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer has the address space that this test limits";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto wanted = AllOf(HasSubstr("the system refused memory on this host"), HasSubstr("asked for"),
                            HasSubstr("smaller micro-batch or model"));
  expect_trouble(prepared(small, "ulimit -v 12000000", "small.yaml --set tf_n_embd=32768"), wanted, 8);
  const Finished ranks = small.mpirun_shell(
      2, "ulimit -v 12000000; exec " ADTRAIN_BINARY_DIR "/adtrain small.yaml --set tf_n_embd=32768");
  expect_trouble(ranks, AllOf(wanted, HasSubstr("exit code   8")), 8);
}

TEST(HostTroubles, HistoriesThatMemoryDoesNotHold) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer has the address space that this test limits";
  const SmallRun small;
  expect_trouble(prepared(small, "ulimit -v 12000000",
                          "collect small.yaml --set n_stream=1000000 --set n_steps=100000 "
                          "--set total_source_timesteps=1e12 --set n_process=1"),
                 HasSubstr("the system refused memory on this host"), 8);
}

TEST(HostTroubles, SizesThatNothingHoldsAreTheConfigurations) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const std::vector<std::string> sizes = {
      "n_transit=1000000000",       "train_batch_size=1000000000", "tf_n_embd=10000000", "tf_n_layer=1000000",
      "test_batch_size=1000000000", "eval_batch=1000000000",       "cpu_threads=1000000"};
  for (const std::string& size : sizes) {
    const Finished finished = small.adtrain("small.yaml --set " + size);
    EXPECT_EQ(finished.exit_code, 2) << finished.output;
    EXPECT_THAT(finished.output, AllOf(HasSubstr(size.substr(0, size.find('='))), HasSubstr("at most")));
  }
  const Finished finished = small.adtrain("small.yaml --set global_batch_size=1000000000");
  EXPECT_EQ(finished.exit_code, 2) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("gradient_accumulation_steps"));
}

TEST(HostTroubles, AFolderForRunsThatCannotBeMade) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_trouble(small.adtrain("small.yaml --set runs_dir=small.yaml"), HasSubstr("small.yaml/small"));
}

TEST(HostTroubles, ADiskWithoutRoomAtTheStart) {
  if (!can_mount()) GTEST_SKIP() << "mounting takes root";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  std::filesystem::create_directories(small.folder() / "runs");
  expect_trouble(
      mounted(small, "mount -t tmpfs -o size=4k none runs && head -c 4096 /dev/zero > runs/full",
              "small.yaml"),
      AllOf(HasSubstr("runs/small"), HasSubstr("No space left on device"), HasSubstr("make room")));
}

TEST(HostTroubles, ARunThatMustNotBeWritten) {
  if (!can_mount()) GTEST_SKIP() << "mounting takes root";
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const std::string read_only = "mount --bind runs runs && mount -o remount,bind,ro runs";
  for (const char* command :
       {"small.yaml --resume", "small.yaml --overwrite", "evaluate runs/small",
        "score runs/small --set score_output_dir=runs/small-scores",
        "sweep small.yaml --seeds 2 --name small-sweep", "checkpoint export runs/small --out runs/small.pt",
        "checkpoint export runs/small --out runs/small.safetensors --set load_in_4bit=true",
        "checkpoint export runs/small --out runs/small-nf4 --set load_in_4bit=true"}) {
    expect_trouble(mounted(small, read_only, command),
                   AllOf(HasSubstr("runs/small"), HasSubstr("Read-only file system"),
                         HasSubstr("writable: its file system is mounted read-only")));
  }
  EXPECT_EQ(small.adtrain("small.yaml --resume").exit_code, 0) << "and nothing was lost";
}

TEST(HostTroubles, ResultsThatCannotBeWrittenAreSaidBeforeTheWork) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  small.write("file", "");
  const std::string score = "score runs/small --set output_dir=";
  const auto not_begun = Not(HasSubstr("weights frozen"));
  const auto in_a_file =
      AllOf(HasSubstr("results cannot be written into file: Not a directory [file]; expected a folder"),
            HasSubstr("score_output_dir=FOLDER"), not_begun);
  expect_trouble(small.adtrain(score + "file"), in_a_file);
  expect_trouble(small.adtrain(score + "file --measure 1"), in_a_file);
  expect_trouble(small.mpirun(2, score + "file"), in_a_file);
  expect_trouble(small.adtrain("merge parts --output file"),
                 AllOf(HasSubstr("into file: Not a directory"), HasSubstr("by --output")));

  const auto of_the_copy = AllOf(HasSubstr("written into runs/small/evaluation/test-step-10: "),
                                 HasSubstr("copy the run"), Not(HasSubstr("runs_dir")), not_begun);
  expect_trouble(with_room_for(small, 2, "evaluate runs/small"),
                 AllOf(HasSubstr("File too large"), of_the_copy));
  EXPECT_FALSE(std::filesystem::exists(small.run() / "evaluation"));
  small.write("runs/small/evaluation", "");
  expect_trouble(small.adtrain("evaluate runs/small"), AllOf(HasSubstr("Not a directory"), of_the_copy));
  expect_trouble(small.mpirun(2, "evaluate runs/small"), AllOf(HasSubstr("Not a directory"), of_the_copy));
}

TEST(HostTroubles, ADiskThatFillsUpMeanwhileCostsNoFigures) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  // What is tried before the work fits, and not all results do.
  expect_trouble(with_room_for(small, 16, "evaluate runs/small"),
                 AllOf(HasSubstr("in-context return: episode 1"), HasSubstr("File too large"),
                       HasSubstr("copy the run"), Not(HasSubstr("runs_dir"))));
  expect_trouble(with_room_for(small, 16, "evaluate runs/small --json"),
                 AllOf(HasSubstr("\"last10_mean\": "), HasSubstr("File too large")));
  expect_trouble(
      with_room_for(small, 16, "score runs/small --set score_tasks=all --set output_dir=scores"),
      AllOf(HasSubstr("accuracy"), HasSubstr("File too large"), HasSubstr("score_output_dir=FOLDER")));
  EXPECT_FALSE(std::filesystem::exists(small.folder() / "scores")) << "nothing was written into it";
}

}  // namespace
}  // namespace adtrain
