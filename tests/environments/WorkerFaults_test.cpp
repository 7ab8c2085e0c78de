#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WorkerModules.h"
#include "base/Clock.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class WorkerFaults : public WorkerTest {};

TEST_F(WorkerFaults, AnExceptionIsToldWithItsTracebackAndPlace) {
  const Ended ended = play("faults:make_failing_step");
  EXPECT_EQ(ended.code, ExitCode::kUsage);
  EXPECT_THAT(ended.message,
              AllOf(HasSubstr("step failed in " + kWhereItIsWrong), HasSubstr("faults.py"),
                    HasSubstr("ValueError: the arm is broken"), Not(HasSubstr("environment_worker.py"))));
}

TEST_F(WorkerFaults, AnExceptionInOneOfTwoHalvesOfSeveralProcesses) {
  WorkerOptions options = worker_of("faults:make_failing_step");
  options.env_workers = 2;
  const Ended ended = play(options);
  EXPECT_EQ(ended.code, ExitCode::kUsage);
  EXPECT_THAT(ended.message, HasSubstr("task 1 (wrong), place 1, episode 2, step 3"));
}

TEST_F(WorkerFaults, AnExceptionBeforeTheFirstStep) {
  const Ended import = play("broken_module:make_env");
  EXPECT_EQ(import.code, ExitCode::kUsage);
  EXPECT_THAT(import.message, AllOf(HasSubstr("import failed"), HasSubstr("no_such_simulator")));
  const Ended absent = play("no_such_module:make_env");
  EXPECT_EQ(absent.code, ExitCode::kUsage);
  EXPECT_THAT(absent.message, HasSubstr("No module named 'no_such_module'"));
  const Ended name = play("faults:make_kiled");
  EXPECT_EQ(name.code, ExitCode::kUsage);
  EXPECT_THAT(name.message,
              AllOf(HasSubstr("no function 'make_kiled'"), HasSubstr("did you mean make_killed?")));
  const Ended make = play("faults:make_failing_make");
  EXPECT_EQ(make.code, ExitCode::kUsage);
  EXPECT_THAT(make.message, AllOf(HasSubstr("make_failing_make failed in task 1 (wrong), place 2"),
                                  HasSubstr("RuntimeError: no such robot")));
  const Ended reset = play("faults:make_failing_reset");
  EXPECT_EQ(reset.code, ExitCode::kUsage);
  EXPECT_THAT(reset.message,
              AllOf(HasSubstr("reset failed in task 1 (wrong), place 2"), HasSubstr("TypeError")));
}

TEST_F(WorkerFaults, AWorkerThatIsKilledIsToldWithItsLastLines) {
  const Ended ended = play("faults:make_killed");
  EXPECT_EQ(ended.code, ExitCode::kEnvironment);
  EXPECT_THAT(ended.message, AllOf(HasSubstr("killed by signal 9"),
                                   HasSubstr("while it was stepping 3 environments of the tasks 0 (sound), 1 "
                                             "(wrong), at step 3 of their episodes; "),
                                   HasSubstr("line 10\n"), HasSubstr("line 29"), Not(HasSubstr("line 9\n"))));
}

TEST_F(WorkerFaults, ASegmentationFaultAndAnExit) {
  const Ended crash = play("faults:make_crashing");
  EXPECT_EQ(crash.code, ExitCode::kEnvironment);
  EXPECT_THAT(crash.message, AllOf(HasSubstr("signal 11"), HasSubstr("stepping 3 environments")));
  const Ended exit = play("faults:make_leaving");
  EXPECT_EQ(exit.code, ExitCode::kEnvironment);
  EXPECT_THAT(exit.message, AllOf(HasSubstr("exit code 7"), HasSubstr("It printed nothing")));
}

/// What the other processes play is not to blame.
TEST_F(WorkerFaults, AWorkerThatEndsIsToldWithTheTasksOfItsOwn) {
  WorkerOptions options = worker_of("faults:make_leaving");
  options.env_overlap = false;
  options.env_workers = 3;
  EXPECT_THAT(play(options).message,
              HasSubstr("while it was stepping 1 environment of " + kWhereItIsWrong + "; "));
}

TEST_F(WorkerFaults, AHangingWorkerSaysWhereItIsAndIsEnded) {
  for (const auto& [function, doing] :
       {std::pair("faults:make_hanging",
                  "stepping 2 environments of the tasks 0 (sound), 1 (wrong), at step 3"),
        std::pair("faults:make_hanging_at_once", "while it was starting")}) {
    WorkerOptions options = worker_of(function);
    options.env_timeout = 8;
    const Stopwatch watch;
    const Ended ended = play(options);
    EXPECT_EQ(ended.code, ExitCode::kEnvironment);
    EXPECT_THAT(ended.message, AllOf(HasSubstr("env_timeout = 8 s"), HasSubstr("faults.py\", line"),
                                     HasSubstr("in hang"), HasSubstr(doing)));
    EXPECT_LT(watch.seconds(), 20);
  }
}

}  // namespace
}  // namespace adtrain
