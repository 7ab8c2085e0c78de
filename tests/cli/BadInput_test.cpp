#include <fstream>
#include <limits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "checkpoint/Manifest.h"
#include "support/FullDisk.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The exit code and the key words of the message that a user meets.
void expect_error(const Finished& finished, int exit_code, const testing::Matcher<std::string>& message) {
  EXPECT_EQ(finished.exit_code, exit_code) << finished.output;
  EXPECT_THAT(finished.output, message);
}

TEST(BadInput, AMissingConfigurationFile) {
  const SmallRun small;
  expect_error(small.adtrain("absent.yaml"), 2, HasSubstr("absent.yaml"));
}

TEST(BadInput, BrokenYamlNamesFileAndLine) {
  const SmallRun small;
  small.write("broken.yaml", "lr: 1e-3\nseed: [1, 2\nn_transit: 4\n");
  expect_error(small.adtrain("broken.yaml"), 2, HasSubstr("broken.yaml:"));
}

TEST(BadInput, AllFaultsOfAFileInOneGo) {
  const SmallRun small;
  small.write("faulty.yaml",
              "include: small.yaml\nn_transt: 20\ntf_n_head: 3\nlr: fast\nhorizon: 0\nsummary_interval: 0\n");
  expect_error(small.adtrain("validate faulty.yaml"), 2,
               AllOf(HasSubstr("faulty.yaml:2"), HasSubstr("n_transit"), HasSubstr("faulty.yaml:3"),
                     HasSubstr("faulty.yaml:4"), HasSubstr("faulty.yaml:5"), HasSubstr("faulty.yaml:6")));
}

TEST(BadInput, WhatAllRanksGotWrongIsSaidOnce) {
  const SmallRun small;
  small.write("faulty.yaml", "include: small.yaml\nn_transt: 20\n");
  for (const Finished& finished : {small.mpirun(2, "faulty.yaml"), small.torchrun(2, "faulty.yaml")}) {
    EXPECT_NE(finished.exit_code, 0);
    EXPECT_THAT(finished.output, HasSubstr("did you mean n_transit?"));
    // torchrun repeats what it was told in its table of failures; the ranks themselves speak once.
    const size_t first = finished.output.find("adtrain: faulty.yaml:2");
    ASSERT_NE(first, std::string::npos) << finished.output;
    EXPECT_EQ(finished.output.find("adtrain: faulty.yaml:2", first + 1), std::string::npos)
        << finished.output;
  }
}

TEST(BadInput, IncludesWithoutEndAreRefused) {
  const SmallRun small;
  for (int link = 0; link < 2000; ++link) {
    const std::string next = "n" + std::to_string(link + 1) + ".yaml";
    std::ofstream(small.folder() / ("n" + std::to_string(link) + ".yaml"))
        << "include: [" << next << ", " << next << "]\n";
  }
  expect_error(small.adtrain("validate n0.yaml"), 2, AllOf(HasSubstr("n99.yaml:1"), HasSubstr("100")));
}

TEST(BadInput, ACheckpointWhoseCursorNoRunReachesIsRefused) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml --stop-after 10").exit_code, 75);
  const auto checkpoint = small.run() / "checkpoints" / "step-10";
  Manifest manifest = Manifest::read(checkpoint);
  manifest.state["samples_drawn"] = std::numeric_limits<int64_t>::max();
  write_file(checkpoint / Manifest::kFileName, manifest.text());
  expect_error(small.adtrain("small.yaml --resume"), 5,
               AllOf(HasSubstr("samples_drawn"), HasSubstr("9007199254740992")));
}

TEST(BadInput, AMisspeltCommandOrOptionIsAnswered) {
  const SmallRun small;
  expect_error(small.adtrain("evalaute runs/small"), 2, HasSubstr("did you mean 'evaluate'"));
  expect_error(small.adtrain("small.yaml --resum"), 2,
               AllOf(HasSubstr("found the option --resum, which adtrain train does not have"),
                     HasSubstr("did you mean --resume?"), HasSubstr("--help")));
  expect_error(
      small.adtrain("score --max-sampels=3"), 2,
      AllOf(HasSubstr("--max-sampels"), HasSubstr("--help"), testing::Not(HasSubstr("did you mean"))));
  expect_error(small.adtrain("small.yaml --set"), 2, HasSubstr("--help"));
  for (const char* const wrong : {"--stop-after abc", "--stop-after=abc"}) {
    expect_error(small.adtrain("train small.yaml " + std::string(wrong)), 2,
                 HasSubstr("--stop-after: found abc; expected a number"));
  }
  expect_error(small.adtrain("small.yaml --set n_transit"), 2, HasSubstr("key=value"));
}

TEST(BadInput, TrainingWithoutHistoriesSaysHowToCollectThem) {
  const SmallRun small;
  expect_error(small.adtrain("small.yaml"), 4,
               AllOf(HasSubstr("adtrain collect"), HasSubstr("history_darkroom")));
}

TEST(BadInput, ATruncatedHistoryFile) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto path = small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5";
  const std::string bytes = read_file(path);
  write_file(path, bytes.substr(0, bytes.size() / 2));
  expect_error(small.adtrain("small.yaml"), 4, HasSubstr("history_darkroom_PPO_alg-seed1.hdf5"));
}

/// Bytes that end HDF5 1.10.8 by a segmentation fault.
TEST(BadInput, AHistoryFileThatCrashesItsLibraryEndsNoProcess) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto path = small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5";
  const std::string whole = read_file(path);
  for (const auto& [place, value] : {std::pair{24, '\1'}, std::pair{1000, '\xff'}, std::pair{7375, '\x80'}}) {
    std::string bytes = whole;
    bytes[static_cast<size_t>(place)] = value;
    write_file(path, bytes);
    const Finished finished = small.adtrain("small.yaml --overwrite --stop-after 1");
    EXPECT_TRUE(finished.exit_code == 4 || finished.exit_code == 75) << finished.output;
    if (finished.exit_code == 4) {
      EXPECT_THAT(finished.output, HasSubstr("history_darkroom_PPO_alg-seed1.hdf5"));
    }
  }
}

TEST(BadInput, ADamagedTaskOfAStoppedCollectionIsLearntAgain) {
  const SmallRun small;
  const std::string long_collection =
      "collect small.yaml --set total_source_timesteps=40000 --set n_process=1";
  const Finished stopped = run_shell(
      "cd " + quoted(small.folder().string()) + " && { " ADTRAIN_BINARY_DIR "/adtrain " + long_collection +
      " & } && until [ -e histories/*.partial/1.hdf5 ]; do sleep 0.05; done; kill $!; wait $!");
  ASSERT_EQ(stopped.exit_code, 75) << stopped.output;
  run_shell("cd " + quoted(small.folder().string()) +
            " && printf '\\1' | dd of=$(echo histories/*.partial/1.hdf5) bs=1 seek=24 conv=notrunc");
  const Finished continued = small.adtrain(long_collection);
  expect_error(continued, 0, AllOf(HasSubstr("1.hdf5"), HasSubstr("learnt again")));
  EXPECT_EQ(small.adtrain("collect small.yaml --set total_source_timesteps=40000").exit_code, 0);
}

TEST(BadInput, HistoriesThatWereCollectedOtherwiseAreRefused) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto otherwise = AllOf(
      HasSubstr("was collected with "), HasSubstr("horizon 8 (the configuration says 30)"),
      HasSubstr("gamma 0.99 (the configuration says 0.5)"), HasSubstr("--overwrite"), HasSubstr("traj_dir"));
  expect_error(small.adtrain("collect small.yaml --set horizon=30 --set gamma=0.5"), 4, otherwise);
  expect_error(small.adtrain("small.yaml --set horizon=30 --set gamma=0.5"), 4, otherwise);
  expect_error(small.collect(), 0, HasSubstr("exists already and is kept"));
}

TEST(BadInput, RanksWithDifferentHistoriesOfOneNameStop) {
  const SmallRun small;
  // Other random numbers under the same name, in files that do not say so, as those of other programs.
  for (const std::string rank : {"0", "1"}) {
    std::filesystem::create_directories(small.folder() / rank);
    const Finished collected =
        small.adtrain("collect small.yaml --set alg_seed=" + rank + " --set traj_dir=" + rank + "/histories");
    ASSERT_EQ(collected.exit_code, 0) << collected.output;
    small.write("strip.py",
                "import glob, os, h5py\n"
                "for name in glob.glob('?/histories/*.hdf5'):\n"
                "    with h5py.File(name, 'r+') as file:\n"
                "        for key in list(file.attrs): del file.attrs[key]\n"
                "    os.rename(name, os.path.dirname(name) + '/history_darkroom_PPO_alg-seed1.hdf5')\n");
    const Finished stripped =
        run_shell("cd " + quoted(small.folder().string()) + " && " + quoted(ADTRAIN_PYTHON) + " strip.py");
    ASSERT_EQ(stripped.exit_code, 0) << stripped.output;
  }
  const Finished finished = small.mpirun_shell(
      2, "cd $OMPI_COMM_WORLD_RANK && exec " ADTRAIN_BINARY_DIR "/adtrain ../small.yaml --set device=cpu");
  expect_error(finished, 3,
               AllOf(HasSubstr("the digest of the histories in histories/history_darkroom"),
                     HasSubstr("on rank 0"), HasSubstr("on rank 1")));
}

TEST(BadInput, HistoriesOfAnotherSizeNameTheSetting) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.adtrain("small.yaml --set train_source_timesteps=500"), 4,
               HasSubstr("train_source_timesteps"));
  expect_error(small.adtrain("small.yaml --set train_n_stream=11"), 4, HasSubstr("train_n_stream"));
  expect_error(small.adtrain("small.yaml --set episode_stride=10"), 4, HasSubstr("episode_stride"));
}

TEST(BadInput, AGlobalBatchThatDoesNotDivideOverTheRanks) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.mpirun(2, "small.yaml --set global_batch_size=25"), 2,
               AllOf(HasSubstr("25"), HasSubstr("the nearest of which is 24")));
}

TEST(BadInput, RanksWithDifferentConfigurationsStop) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished = small.mpirun_shell(
      2, "exec " ADTRAIN_BINARY_DIR "/adtrain small.yaml --set lr=1e-$OMPI_COMM_WORLD_RANK");
  expect_error(finished, 3, HasSubstr("configuration"));
}

TEST(BadInput, ARankThatDoesNotStartIsNotWaitedForWithoutEnd) {
  const SmallRun small;
  const Finished finished =
      small.mpirun_shell(2,
                         "test $OMPI_COMM_WORLD_RANK = 0 || exec sleep 500\n"
                         "exec " ADTRAIN_BINARY_DIR "/adtrain test --set rendezvous_timeout_seconds=2");
  expect_error(finished, 3,
               AllOf(HasSubstr("rank 0 of 2"), HasSubstr("waited 2.0 s for all ranks to start")));
}

TEST(BadInput, CollectingByALauncherIsRefused) {
  const SmallRun small;
  expect_error(small.mpirun(2, "collect small.yaml"), 3,
               AllOf(HasSubstr("one process"), HasSubstr("OMPI_COMM_WORLD_SIZE=2")));
}

TEST(BadInput, ACheckpointOfAnotherModelIsRefused) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  expect_error(small.adtrain("small.yaml --resume --set tf_n_embd=32"), 2,
               HasSubstr("tf_n_embd: 16 in the run, 32 now"));
  expect_error(small.adtrain("small.yaml --resume --set tf_n_embd=32 --allow-changes tf_n_embd"), 5,
               AllOf(HasSubstr("embed_context"), HasSubstr("shape")));
  EXPECT_EQ(small.adtrain("evaluate runs/small").exit_code, 0) << "the refused start left the run as it was";
}

TEST(BadInput, OtherHeadsThanTheWeightsHaveAreRefusedThoughShapesFit) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const auto refusal = AllOf(HasSubstr("checkpoints/step-20: "),
                             HasSubstr("tf_n_head: 2 in the weights, 4 here"), HasSubstr("2 heads"));
  const std::string other_heads = " --set tf_n_head=4";
  expect_error(small.adtrain("evaluate runs/small" + other_heads), 2, refusal);
  expect_error(small.adtrain("evaluate runs/small --set load_in_8bit=true" + other_heads), 2, refusal);
  expect_error(small.adtrain("score runs/small histories/*.hdf5" + other_heads), 2, refusal);
  expect_error(
      small.adtrain("checkpoint export runs/small --out runs/other --set load_in_8bit=true" + other_heads), 2,
      refusal);
  EXPECT_FALSE(std::filesystem::exists(small.run("other")));
}

TEST(BadInput, AnOverwriteThatCannotStartKeepsTheEarlierRun) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  expect_error(small.adtrain("small.yaml --overwrite --set traj_dir=elsewhere"), 4, HasSubstr("elsewhere"));
  EXPECT_TRUE(std::filesystem::exists(small.run() / "checkpoints" / "step-20" / "manifest.json"));
}

TEST(BadInput, ALearningRateThatBlowsUpSaysWhatToDo) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  expect_error(small.adtrain("small.yaml --set lr=1e30 --set max_grad_norm=0 --set num_warmup_steps=0"), 6,
               AllOf(HasSubstr("not finite"), HasSubstr("No step is saved yet"), HasSubstr("lr")));
}

TEST(BadInput, NoSpaceForACheckpointIsALoudWarningAndTrainingGoesOnToItsEnd) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  // A limit on file sizes stands in for a full disk: weights do not fit, the configuration does.
  const Finished finished = run_shell("cd " + quoted(small.folder().string()) + " && " + limit_files_to(16) +
                                      ADTRAIN_BINARY_DIR "/adtrain small.yaml");
  expect_error(
      finished, 5,
      AllOf(HasSubstr("step 10 was NOT saved"), HasSubstr("training continues"), HasSubstr("step 20")));
}

TEST(BadInput, EvaluatingWhatIsNoRun) {
  const SmallRun small;
  expect_error(small.adtrain("evaluate runs/nothing"), 5, HasSubstr("runs/nothing"));
}

TEST(BadInput, ACudaDeviceThatIsNotThere) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished finished =
      run_shell("cd " + quoted(small.folder().string()) +
                " && CUDA_VISIBLE_DEVICES= " ADTRAIN_BINARY_DIR "/adtrain small.yaml --set device=cuda");
  expect_error(finished, 3, AllOf(HasSubstr("GPU"), HasSubstr("device")));
}

TEST(BadInput, CollectingOnACudaDeviceThatIsNotThere) {
  const SmallRun small;
  const Finished finished = run_shell("cd " + quoted(small.folder().string()) +
                                      " && CUDA_VISIBLE_DEVICES= " ADTRAIN_BINARY_DIR
                                      "/adtrain collect small.yaml --set device=cuda");
  expect_error(finished, 3, AllOf(HasSubstr("no GPU is visible"), HasSubstr("device: auto or cpu")));
}

TEST(BadInput, AnOverwritingCollectionThatFailsKeepsTheFormerHistories) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const auto path = small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5";
  const std::string former = read_file(path);
  const std::string in_folder = "cd " + quoted(small.folder().string()) + " && ";
  const std::string again = ADTRAIN_BINARY_DIR "/adtrain collect small.yaml --overwrite --set gamma=0.5";
  expect_error(run_shell(in_folder + "CUDA_VISIBLE_DEVICES= " + again + " --set device=cuda"), 3,
               HasSubstr("no GPU is visible"));
  EXPECT_EQ(read_file(path), former);
  // A limit on file sizes stands in for a full disk.
  expect_error(
      run_shell(in_folder + limit_files_to(8) + again), 4,
      AllOf(HasSubstr("cannot write"), HasSubstr("make room"), HasSubstr("the same command continues")));
  EXPECT_EQ(read_file(path), former);
  expect_error(run_shell(in_folder + again), 0, HasSubstr("kept until the new one is complete"));
  EXPECT_NE(read_file(path), former);
}

}  // namespace
}  // namespace adtrain
