#include <cstdlib>
#include <fstream>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "WorkerModules.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class NamesOfTasks : public WorkerTest {};

/// What every module here begins with.
constexpr const char* kModule = R"(
import dataclasses
import os

import numpy

from faults import Sound


class Plain:
    pass


class Told:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name


@dataclasses.dataclass
class Fields:
    goal: int
    other: object = None


def make_env(task, seed):
    return Sound()


)";

/// Plays environments of a module with these TASKS, of which there are two.
Ended play_tasks(const std::string& tasks, int64_t workers) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "named.py") << kModule << "TASKS = " << tasks << "\n";
  WorkerOptions options = worker_of("named:make_env");
  options.env_workers = workers;
  const std::string path = folder.path().string() + ":" + getenv("PYTHONPATH");
  setenv("PYTHONPATH", path.c_str(), 1);
  return play(options);
}

/// By its name a run knows whether it was trained on a task: those with addresses would all be held out.
TEST_F(NamesOfTasks, AreRefusedWhereTheyHaveAddresses) {
  const std::vector<std::pair<std::string, testing::Matcher<std::string>>> cases = {
      {"[Plain(), Plain()]", AllOf(HasSubstr("<named.Plain object at 0x"), HasSubstr("task 0"))},
      {"['a', lambda: 1]", AllOf(HasSubstr("<function <lambda> at 0x"), HasSubstr("task 1"))},
      {"[Fields(1), Fields(2, Plain())]", AllOf(HasSubstr("Fields(goal=2, other="), HasSubstr("task 1"))},
  };
  for (const auto& [tasks, message] : cases) {
    const Ended ended = play_tasks(tasks, /*workers=*/1);
    EXPECT_EQ(ended.code, ExitCode::kData) << tasks;
    EXPECT_THAT(ended.message, AllOf(HasSubstr("import gave wrong TASKS"), message, HasSubstr("__str__")));
  }
  for (const char* tasks :
       {"[Told('one'), Told('other')]", "[Fields(1), Fields(2)]", "['write at 0x10', Plain]"}) {
    EXPECT_EQ(play_tasks(tasks, /*workers=*/2).message, "") << tasks;
  }
}

/// They would be one task: trained on and held out at the same time.
TEST_F(NamesOfTasks, AreRefusedWhereTwoAreTheSame) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"['a', 'a', 'b']", "found a as the name of task 0 and of task 1"},
      {"[1, 2, '1']", "found 1 as the name of task 0 and of task 2"},
      {"(Told('same'), 'b', Told('same'))", "found same as the name of task 0 and of task 2"},
  };
  for (const auto& [tasks, message] : cases) {
    const Ended ended = play_tasks(tasks, /*workers=*/1);
    EXPECT_EQ(ended.code, ExitCode::kData) << tasks;
    EXPECT_THAT(ended.message, AllOf(HasSubstr("import gave wrong TASKS"), HasSubstr(message),
                                     HasSubstr("another name, str(task), for each")));
  }
}

TEST_F(NamesOfTasks, AreThoseOfAList) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{'b', 'a'}", "found a set"},
      {"5", "found an int"},
      {"'ab'", "found a str"},
      {"{0: 'a', 1: 'b'}", "found a dict"},
      {"(i for i in range(2))", "found a generator"},
  };
  for (const auto& [tasks, message] : cases) {
    const Ended ended = play_tasks(tasks, /*workers=*/1);
    EXPECT_EQ(ended.code, ExitCode::kData) << tasks;
    EXPECT_THAT(ended.message, AllOf(HasSubstr("import gave wrong TASKS"), HasSubstr(message),
                                     HasSubstr("expected a list of tasks")));
  }
  const Ended none = play_tasks("()", /*workers=*/1);
  EXPECT_EQ(none.code, ExitCode::kData);
  EXPECT_THAT(none.message, HasSubstr("found none; expected one task at least"));
  for (const char* tasks : {"('a', 'b')", "range(2)", "numpy.arange(2)", "numpy.array(['a', 'b'])"}) {
    EXPECT_EQ(play_tasks(tasks, /*workers=*/1).message, "") << tasks;
  }
}

TEST_F(NamesOfTasks, ProcessesThatFindOtherTasksAreRefused) {
  const Ended ended = play_tasks("[os.getpid(), 1]", /*workers=*/2);
  EXPECT_EQ(ended.code, ExitCode::kUsage);
  EXPECT_THAT(ended.message, AllOf(HasSubstr("env_workers = 2 processes found other spaces or tasks"),
                                   HasSubstr("TASKS must not depend on")));
}

}  // namespace
}  // namespace adtrain
