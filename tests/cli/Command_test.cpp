#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "adtrain/adtrain.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Command, TheVersionIsTheSameInsideAndOutside) {
  const SmallRun small;
  EXPECT_EQ(small.adtrain("--version").output, "adtrain " + version() + "\n");
}

TEST(Command, EveryCommandHelpsWithAnExample) {
  const SmallRun small;
  const Finished general = small.adtrain("--help");
  EXPECT_EQ(general.exit_code, 0);
  for (const std::string command : {"train", "collect", "evaluate", "validate", "env"}) {
    EXPECT_THAT(general.output, HasSubstr("  " + command));
    const Finished help = small.adtrain(command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.output, AllOf(HasSubstr("examples:"), HasSubstr("adtrain " + command))) << command;
  }
}

TEST(Command, EnvReportsVersionsDevicesAndLauncher) {
  const SmallRun small;
  const auto report = nlohmann::json::parse(small.adtrain("env --json").output);
  for (const char* name : {"libtorch", "NCCL", "MPI", "CUDA runtime", "HDF5"}) {
    EXPECT_FALSE(report.at("versions").at(name).at("found").get<std::string>().empty()) << name;
  }
  EXPECT_TRUE(report.at("gpus").is_array());
  EXPECT_EQ(report.at("launcher").at("world size"), 1);
  EXPECT_THAT(small.adtrain("env").output, AllOf(HasSubstr("NCCL"), HasSubstr("launcher")));
}

TEST(Command, ValidatePrintsAConfigurationThatLoadsBack) {
  const SmallRun small;
  const Finished first = small.adtrain("validate small.yaml --set lr=0.5");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  small.write("resolved.yaml", first.output);
  const Finished second = small.adtrain("validate resolved.yaml --json");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_THAT(first.output,
              HasSubstr(nlohmann::json::parse(second.output).at("resolved").get<std::string>()));
}

TEST(Command, ExplainKnowsTheKeysOfEverySection) {
  const SmallRun small;
  const auto reference = nlohmann::json::parse(small.adtrain("validate --explain --json").output);
  std::vector<std::string> keys;
  for (const auto& section : reference.at("sections")) {
    for (const auto& key : section.at("keys")) keys.push_back(key.at("name"));
  }
  EXPECT_THAT(keys, testing::IsSupersetOf({"run_name", "env", "n_stream", "traj_dir", "tf_n_embd", "lr",
                                           "eval_episodes", "bucket_megabytes"}));
}

TEST(Command, EveryExampleConfigurationIsValid) {
  const SmallRun small;
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ADTRAIN_SOURCE_DIR "/configs")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".yaml") continue;
    if (path.find("/run/") == std::string::npos && path.find("quickstart") == std::string::npos) continue;
    const Finished finished = small.adtrain("validate " + quoted(path));
    EXPECT_EQ(finished.exit_code, 0) << path << "\n" << finished.output;
    ++count;
  }
  EXPECT_GE(count, 13);
}

TEST(Command, AStoppedCollectionContinues) {
  const SmallRun small;
  const Finished stopped =
      run_shell("cd " + quoted(small.folder().string()) +
                " && timeout -s INT 1.5 " ADTRAIN_BINARY_DIR
                "/adtrain collect small.yaml --set total_source_timesteps=600000 --set n_process=1");
  EXPECT_EQ(stopped.exit_code, 124) << stopped.output;  // timeout's own code: the signal was sent
  EXPECT_THAT(stopped.output, HasSubstr("continue"));
  EXPECT_FALSE(std::filesystem::exists(small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5"));
  const Finished continued =
      small.adtrain("collect small.yaml --set total_source_timesteps=600000 --set n_process=1");
  EXPECT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_THAT(continued.output, HasSubstr("continu"));
  EXPECT_TRUE(std::filesystem::exists(small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5"));
}

}  // namespace
}  // namespace adtrain
