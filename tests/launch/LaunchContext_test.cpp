#include "launch/LaunchContext.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

LaunchContext detect(const Variables& variables, const LaunchFlags& flags = {}) {
  return LaunchContext::detect(flags, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Variables operator+(Variables first, const Variables& second) {
  for (const auto& [name, value] : second) first[name] = value;
  return first;
}

const Variables kByHand = {{"RANK", "5"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "node0"},
                           {"MASTER_PORT", "29400"}};
const Variables kTorchrun =
    kByHand + Variables{{"TORCHELASTIC_RUN_ID", "run7"}, {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kAllocation = {{"SLURM_NTASKS", "6"},
                               {"SLURM_PROCID", "0"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURM_JOB_NAME", "ad"},
                               {"SLURM_JOB_ID", "9871234"}};
const Variables kStep = kAllocation + Variables{{"SLURM_PROCID", "4"},
                                                {"SLURM_LOCALID", "1"},
                                                {"SLURM_NODEID", "1"},
                                                {"SLURM_STEP_ID", "0"},
                                                {"SLURM_STEP_NODELIST", "n[05-06]"},
                                                {"SLURM_STEP_TASKS_PER_NODE", "3(x2)"}};

std::string complaint(const Variables& variables, const LaunchFlags& flags = {}) {
  try {
    detect(variables, flags);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchContext, NothingSetIsASingleProcess) {
  const LaunchContext context = detect({});
  EXPECT_EQ(context.launcher, Launcher::kSingle);
  EXPECT_EQ(context.rank, 0);
  EXPECT_EQ(context.world_size, 1);
  EXPECT_EQ(context.local_world_size, 1);
  EXPECT_EQ(context.master_address, "");
  EXPECT_THAT(context.evidence, HasSubstr("torchrun"));
}

TEST(LaunchContext, TorchrunsEnvironment) {
  const LaunchContext context = detect(kTorchrun);
  EXPECT_EQ(context.launcher, Launcher::kTorchrun);
  EXPECT_EQ(context.rank, 5);
  EXPECT_EQ(context.world_size, 8);
  EXPECT_EQ(context.local_rank, 1);
  EXPECT_EQ(context.local_world_size, 4);
  EXPECT_FALSE(context.on_one_host());
  EXPECT_EQ(context.master_address, "node0");
  EXPECT_EQ(context.master_port, 29400);
  EXPECT_EQ(context.run_id, "run7");
  EXPECT_EQ(context.restart_count, 2);
  EXPECT_FALSE(context.agent_store);
  EXPECT_THAT(context.evidence,
              AllOf(HasSubstr("RANK=5"), HasSubstr("WORLD_SIZE=8"), HasSubstr("set by torchrun")));
}

TEST(LaunchContext, TheAgentServesTheStoreOnlyIfTheWordIsTrue) {
  EXPECT_TRUE(detect(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}}).agent_store);
  EXPECT_FALSE(detect(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).agent_store);
  EXPECT_FALSE(detect(kTorchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "1"}}).agent_store);
}

TEST(LaunchContext, MpirunsEnvironment) {
  const LaunchContext context = detect(kMpirun);
  EXPECT_EQ(context.launcher, Launcher::kMpi);
  EXPECT_EQ(context.rank, 3);
  EXPECT_EQ(context.world_size, 4);
  EXPECT_EQ(context.local_rank, 1);
  EXPECT_EQ(context.local_world_size, 2);
  EXPECT_THAT(context.evidence, HasSubstr("OMPI_COMM_WORLD_SIZE=4"));
}

TEST(LaunchContext, OneProcessUnderMpirunIsASingleOne) {
  const Variables one = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  EXPECT_EQ(detect(one).launcher, Launcher::kSingle);
}

TEST(LaunchContext, SlurmStep) {
  const LaunchContext context = detect(kStep);
  EXPECT_EQ(context.launcher, Launcher::kSlurm);
  EXPECT_EQ(context.rank, 4);
  EXPECT_EQ(context.world_size, 6);
  EXPECT_EQ(context.local_rank, 1);
  EXPECT_EQ(context.local_world_size, 3);
  EXPECT_EQ(context.master_address, "n05");
  EXPECT_EQ(context.master_port, 16234);
  EXPECT_EQ(context.run_id, "slurm-9871234.0");
  EXPECT_THAT(context.evidence, AllOf(HasSubstr("SLURM_PROCID=4"), HasSubstr("n[05-06]")));
}

TEST(LaunchContext, ASlurmStepMeetsWhereItIsTold) {
  const LaunchContext context = detect(kStep + Variables{{"MASTER_ADDR", "n06"}, {"MASTER_PORT", "12345"}});
  EXPECT_EQ(context.launcher, Launcher::kSlurm);
  EXPECT_EQ(context.master_address, "n06");
  EXPECT_EQ(context.master_port, 12345);
}

TEST(LaunchContext, SlurmsJobScriptAndInteractiveJobsAreSingleProcesses) {
  EXPECT_EQ(detect(kAllocation).launcher, Launcher::kSingle);
  EXPECT_THAT(detect(kAllocation).evidence,
              AllOf(HasSubstr("SLURM_NTASKS=6"), HasSubstr("in no SLURM step"), HasSubstr("srun")));
  // salloc's shell where the cluster has LaunchParameters=use_interactive_step, whatever the job's name.
  for (const std::string name : {"interactive", "exp"}) {
    const LaunchContext context = detect(kAllocation + Variables{{"SLURM_JOB_NAME", name},
                                                                 {"SLURM_STEP_ID", "4294967290"},
                                                                 {"SLURM_STEP_NODELIST", "n05"},
                                                                 {"SLURM_STEP_NUM_TASKS", "1"},
                                                                 {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                                                 {"SLURM_PTY_PORT", "37649"}});
    EXPECT_EQ(context.launcher, Launcher::kSingle) << name;
    EXPECT_THAT(context.evidence, AllOf(HasSubstr("SLURM_NTASKS=6"), HasSubstr("interactive job")));
  }
  // The shell of `srun -n6 --pty bash`; the other five tasks have ended.
  EXPECT_EQ(detect(kStep + Variables{{"SLURM_PROCID", "0"},
                                     {"SLURM_JOB_NAME", "bash"},
                                     {"SLURM_STEP_NUM_TASKS", "6"},
                                     {"SLURM_PTY_PORT", "42637"}})
                .launcher,
            Launcher::kSingle);
}

TEST(LaunchContext, AStepThatIsStartedFromAnInteractiveJobHasAllItsRanks) {
  const Variables step = kStep + Variables{{"SLURM_STEP_NUM_TASKS", "6"}};
  const Variables from_a_terminal = {{"SLURM_PTY_PORT", "37649"}};  // salloc's or srun's, which steps inherit
  for (const Variables& more :
       {Variables{{"SLURM_JOB_NAME", "interactive"}},
        Variables{{"SLURM_JOB_NAME", "interactive"}} + from_a_terminal,
        Variables{{"SLURM_JOB_NAME", "exp"}} + from_a_terminal, Variables{{"SLURM_JOB_NAME", "bash"}},
        Variables{{"SLURM_JOB_NAME", "bash"}, {"SLURM_STEP_ID", "1"}} + from_a_terminal}) {
    const LaunchContext context = detect(step + more);
    EXPECT_EQ(context.launcher, Launcher::kSlurm) << more.at("SLURM_JOB_NAME");
    EXPECT_EQ(context.rank, 4);
    EXPECT_EQ(context.world_size, 6);
  }
}

TEST(LaunchContext, AJobsNameDecidesWhereItsStepDoesNotSayHowManyTasksItHas) {
  EXPECT_EQ(detect(kStep).launcher, Launcher::kSlurm);
  EXPECT_EQ(detect(kStep + Variables{{"SLURM_JOB_NAME", "bash"}}).launcher, Launcher::kSingle);
  EXPECT_EQ(detect(kStep + Variables{{"SLURM_JOB_NAME", "interactive"}}).launcher, Launcher::kSingle);
}

TEST(LaunchContext, TorchrunStandsBeforeMpiAndMpiBeforeSlurm) {
  EXPECT_EQ(detect(kTorchrun + kMpirun + kStep).launcher, Launcher::kTorchrun);
  EXPECT_EQ(detect(kMpirun + kStep).launcher, Launcher::kMpi);
  EXPECT_EQ(detect(kMpirun + kStep).rank, 3);
}

TEST(LaunchContext, ExplicitFlagsStandFirst) {
  LaunchFlags flags;
  flags.rank = 1;
  flags.world_size = 2;
  flags.master_address = "127.0.0.1";
  flags.master_port = 5000;
  const LaunchContext context = detect({}, flags);
  EXPECT_EQ(context.launcher, Launcher::kFlags);
  EXPECT_EQ(context.rank, 1);
  EXPECT_EQ(context.local_rank, 1);
  EXPECT_TRUE(context.on_one_host());
  flags.rank = 9;
  flags.world_size = 16;
  flags.local_rank = 1;
  flags.local_world_size = 2;
  EXPECT_EQ(detect(kTorchrun, flags).rank, 9) << "each of torchrun's ranks may start two of ours";
}

TEST(LaunchContext, IncompleteFlagsAreRefused) {
  LaunchFlags flags;
  flags.rank = 1;
  EXPECT_THAT(complaint({}, flags), HasSubstr("incomplete"));
  flags.world_size = 2;
  EXPECT_THAT(complaint({}, flags), HasSubstr("master's address"));
}

TEST(LaunchContext, AnIncompleteTorchrunEnvironmentNamesWhatIsMissing) {
  Variables variables = kTorchrun;
  variables.erase("LOCAL_RANK");
  variables.erase("MASTER_PORT");
  EXPECT_THAT(complaint(variables),
              AllOf(HasSubstr("RANK, WORLD_SIZE"), HasSubstr("LOCAL_RANK, MASTER_PORT is not")));
}

TEST(LaunchContext, ARankOutsideTheWorldIsRefused) {
  EXPECT_THAT(complaint(kTorchrun + Variables{{"RANK", "8"}}),
              AllOf(HasSubstr("rank 8"), HasSubstr("world size 8")));
  EXPECT_THAT(complaint(kTorchrun + Variables{{"RANK", "-1"}}), HasSubstr("rank -1"));
  EXPECT_THAT(complaint(kTorchrun + Variables{{"LOCAL_RANK", "4"}}),
              AllOf(HasSubstr("local rank 4"), HasSubstr("local world size 4")));
  EXPECT_THAT(complaint(kTorchrun + Variables{{"LOCAL_WORLD_SIZE", "16"}}),
              AllOf(HasSubstr("local world size 16"), HasSubstr("world size 8")));
}

TEST(LaunchContext, NumbersAreChecked) {
  EXPECT_THAT(complaint(kTorchrun + Variables{{"WORLD_SIZE", "8x"}}),
              AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("8x")));
  EXPECT_THAT(complaint(kTorchrun + Variables{{"MASTER_PORT", "70000"}}), HasSubstr("MASTER_PORT is 70000"));
}

TEST(LaunchContext, SlurmStartedSeveralButMpiSeesOne) {
  EXPECT_THAT(complaint(kStep + Variables{{"OMPI_COMM_WORLD_SIZE", "1"}}),
              AllOf(HasSubstr("SLURM_NTASKS=6"), HasSubstr("OMPI_COMM_WORLD_SIZE=1")));
}

TEST(LaunchContext, AnotherMpisLauncherIsNamed) {
  EXPECT_THAT(complaint({{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}),
              AllOf(HasSubstr("PMI_SIZE=4"), HasSubstr("mpirun")));
}

TEST(LaunchContext, VariablesSetByHandMustNotContradictTheLauncher) {
  const Variables mpirun_of_eight = kMpirun + Variables{{"OMPI_COMM_WORLD_SIZE", "8"}};
  EXPECT_THAT(complaint(kByHand + mpirun_of_eight),
              AllOf(HasSubstr("RANK=5"), HasSubstr("OMPI_COMM_WORLD_RANK=3")));
  EXPECT_EQ(detect(kByHand + mpirun_of_eight + Variables{{"OMPI_COMM_WORLD_RANK", "5"}}).rank, 5);
  EXPECT_EQ(detect(kByHand + kMpirun).rank, 5) << "mpirun may start one script a host";
  EXPECT_EQ(detect(kTorchrun + mpirun_of_eight).rank, 5) << "torchrun numbers ranks as it likes";

  LaunchFlags flags;
  flags.rank = 0;
  flags.world_size = 4;
  flags.master_address = "127.0.0.1";
  flags.master_port = 5000;
  EXPECT_THAT(complaint(kMpirun, flags),
              AllOf(HasSubstr("rank 0 of 4"), HasSubstr("OMPI_COMM_WORLD_RANK=3")));
}

}  // namespace
}  // namespace adtrain
