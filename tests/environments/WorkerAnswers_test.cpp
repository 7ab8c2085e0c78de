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

class WorkerAnswers : public WorkerTest {};

TEST_F(WorkerAnswers, WrongValuesAreNotPassedOn) {
  const std::vector<std::pair<std::string, testing::Matcher<std::string>>> cases = {
      {"make_long_observation", AllOf(HasSubstr("shape (3,), int64"), HasSubstr("shape (2,), int64"))},
      {"make_real_observation", HasSubstr("shape (2,), float64")},
      {"make_dict_observation", HasSubstr("found dict")},
      {"make_ragged_observation", HasSubstr("found list")},
      {"make_observation_outside", HasSubstr("9 at [1], which is none of 0 to 8")},
      {"make_nan_observation", HasSubstr("nan at [1]")},
      {"make_nan_reward", AllOf(HasSubstr("wrong reward"), HasSubstr("found nan"))},
      {"make_text_reward", AllOf(HasSubstr("wrong reward"), HasSubstr("'much'"))},
      {"make_ragged_reward", AllOf(HasSubstr("wrong reward"), HasSubstr("[[1], [2, 3]]"))},
      {"make_huge_reward", AllOf(HasSubstr("wrong reward"), HasSubstr("-1e+39"), HasSubstr("float32"))},
      {"make_wrapping_observation", HasSubstr("found 260 at [1]; expected numbers that int8 can hold")},
      {"make_dict_terminated", AllOf(HasSubstr("wrong terminated"), HasSubstr("{'agent': False}"))},
      {"make_two_terminated", AllOf(HasSubstr("wrong terminated"), HasSubstr("array([False,  True])"))},
      {"make_real_terminated", AllOf(HasSubstr("wrong terminated"), HasSubstr("found 0.5; expected one"))},
      {"make_whole_terminated", AllOf(HasSubstr("wrong terminated"), HasSubstr("found 2; expected one"))},
      {"make_negative_truncated", AllOf(HasSubstr("wrong truncated"), HasSubstr("found array(-1)"))},
      {"make_text_truncated", AllOf(HasSubstr("wrong truncated"), HasSubstr("found 'no'; expected one"))},
      {"make_no_truncated", AllOf(HasSubstr("wrong truncated"), HasSubstr("found None; expected one"))},
      {"make_wrapping_vector", HasSubstr("found 260 at [1]; expected numbers that int8 can hold")},
  };
  for (const auto& [function, message] : cases) {
    const Ended ended = play("faults:" + function);
    EXPECT_EQ(ended.code, ExitCode::kData) << function;
    EXPECT_THAT(ended.message, AllOf(message, HasSubstr(kWhereItIsWrong))) << function;
  }
  for (const char* sound :
       {"faults:make_true_ends", "faults:make_whole_ends", "faults:make_float_ends", "faults:make_narrow",
        "faults:make_sound_vector", "faults:make_vector_of_floats"}) {
    EXPECT_EQ(play(sound).message, "");
  }
}

TEST_F(WorkerAnswers, WrongValuesOfAVectorAreNotPassedOn) {
  const std::vector<std::pair<std::string, testing::Matcher<std::string>>> cases = {
      {"make_vector_with_real_ends", AllOf(HasSubstr("wrong terminated"), HasSubstr("(3,), float64"))},
      {"make_vector_with_dict", AllOf(HasSubstr("wrong truncated"), HasSubstr("dict of shape ()"))},
      {"make_vector_with_nones", AllOf(HasSubstr("wrong terminated"), HasSubstr("(3,), object"))},
      {"make_vector_with_whole_ends",
       AllOf(HasSubstr("wrong terminated"), HasSubstr("array([0, 2, 1]); expected"), HasSubstr("0 and 1"))},
      {"make_vector_with_one_true", AllOf(HasSubstr("wrong terminated"), HasSubstr("bool of shape ()"))},
      {"make_vector_with_two", AllOf(HasSubstr("wrong terminated"), HasSubstr("int of shape ()"))},
      {"make_vector_with_ragged_rewards", AllOf(HasSubstr("step gave wrong rewards in one of 3 places"),
                                                HasSubstr("found list"), HasSubstr("at step 3 of their"))},
  };
  for (const auto& [function, message] : cases) {
    const Ended ended = play("faults:" + function);
    EXPECT_EQ(ended.code, ExitCode::kData) << function;
    EXPECT_THAT(ended.message, AllOf(message, HasSubstr("expected shape (3,)"), HasSubstr("1 (wrong)")))
        << function;
  }
}

/// Of one that looks at the mask nothing is demanded of what the others observe.
TEST_F(WorkerAnswers, AVectorThatResetsEnvironmentsWhichPlayOnIsRefused) {
  const Ended all = play("faults:make_vector_that_resets_all");
  EXPECT_EQ(all.code, ExitCode::kData);
  EXPECT_THAT(all.message,
              AllOf(HasSubstr("reset gave a wrong observation in task 0 (sound), place 0, episode 1, step 3"),
                    HasSubstr("to leave the other environments as they are")));
  for (const char* sound : {"faults:make_vector_with_mask", "faults:make_vector_that_pickles_options",
                            "faults:make_vector_that_copies_options"}) {
    EXPECT_EQ(play(sound).message, "") << sound;
  }
}

TEST_F(WorkerAnswers, WhatIsNoEnvironmentIsNamed) {
  const Ended later = play("faults:make_nothing");
  EXPECT_EQ(later.code, ExitCode::kData);
  EXPECT_THAT(later.message,
              AllOf(HasSubstr("make_nothing gave a wrong environment in task 1 (wrong), place 2"),
                    HasSubstr("found NoneType"), HasSubstr("expected a gymnasium.Env")));
  const Ended first = play("faults:make_nothing_at_all");
  EXPECT_EQ(first.code, ExitCode::kData);
  EXPECT_THAT(first.message, HasSubstr("make_nothing_at_all gave a wrong environment: found NoneType"));
  const Ended vector = play("faults:make_no_vector");
  EXPECT_EQ(vector.code, ExitCode::kData);
  EXPECT_THAT(vector.message, AllOf(HasSubstr("found NoneType"), HasSubstr("1 (wrong)"),
                                    HasSubstr("expected a gymnasium.vector.VectorEnv")));
}

TEST_F(WorkerAnswers, SpacesThatNoModelWasTrainedForAreNamed) {
  const WorkerPool pool(worker_of("corridors:make_real"), {});
  try {
    pool.hello().expect_spaces({Space::multi_discrete({2}, {9}), Space::discrete(5), {}},
                               "corridors:make_real");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("Box((3,), float32)"), HasSubstr("MultiDiscrete((2,), 9 values)"),
                      HasSubstr("Box((2,), float64)"), HasSubstr("Discrete(5)")));
  }
  const WorkerPool corridors(worker_of("corridors:make_env"), {});
  EXPECT_NO_THROW(
      corridors.hello().expect_spaces({Space::multi_discrete({2}, {9}), Space::discrete(5), {}}, ""));
  EXPECT_THROW(corridors.hello().expect_spaces({Space::multi_discrete({2}, {5}), Space::discrete(5), {}}, ""),
               ConfigError);
  const Ended dict = play("faults:make_dict");
  EXPECT_EQ(dict.code, ExitCode::kUsage);
  EXPECT_THAT(dict.message, AllOf(HasSubstr("'Dict'"), HasSubstr("observation_space of faults:make_dict")));
  const Ended differs = play("faults:make_other_space");
  EXPECT_EQ(differs.code, ExitCode::kData);
  EXPECT_THAT(differs.message,
              AllOf(HasSubstr("Discrete(6)"), HasSubstr("Discrete(5)"), HasSubstr("task 1 (wrong)")));
  const Ended bounds = play("faults:make_other_action_bounds");
  EXPECT_EQ(bounds.code, ExitCode::kData);
  EXPECT_THAT(bounds.message, AllOf(HasSubstr("wrong action space in task 1 (wrong), place 2"),
                                    HasSubstr("found Box(-3.0, 3.0, (1,), float32)"),
                                    HasSubstr("that of the first task, Box(-1.0, 1.0, (1,), float32)")));
  EXPECT_EQ(play("faults:make_other_observation_bounds").message, "");
}

/// A Python that runs `statements` before the worker.
WorkerOptions under(const TemporaryFolder& folder, const std::string& options,
                    const std::string& statements) {
  std::ofstream(folder.path() / "start.py") << "import runpy, sys\n"
                                            << statements
                                            << "\nsys.argv = sys.argv[1:]\n"
                                               "runpy.run_path(sys.argv[0], run_name='__main__')\n";
  WorkerOptions worker = worker_of("corridors:make_env");
  worker.env_python =
      std::string(ADTRAIN_PYTHON) + " " + options + " " + (folder.path() / "start.py").string();
  return worker;
}

TEST_F(WorkerAnswers, APythonThatLacksSomethingIsToldHowToGetIt) {
  const TemporaryFolder folder;
  const Ended old = play(under(folder, "", "sys.version_info = (3, 8, 18)"));
  EXPECT_EQ(old.code, ExitCode::kEnvironment);
  EXPECT_THAT(old.message, AllOf(HasSubstr("is Python 3.8; expected 3.9 or newer"), HasSubstr("env_python")));
  const Ended numpy = play(under(folder, "-S", ""));
  EXPECT_EQ(numpy.code, ExitCode::kEnvironment);
  EXPECT_THAT(numpy.message,
              AllOf(HasSubstr("cannot import numpy"), HasSubstr("-m pip install numpy gymnasium")));
  const Ended gymnasium = play(under(folder, "", "sys.modules['gymnasium'] = None"));
  EXPECT_EQ(gymnasium.code, ExitCode::kEnvironment);
  EXPECT_THAT(gymnasium.message, HasSubstr("cannot import gymnasium"));
}

TEST_F(WorkerAnswers, AnotherProtocolOrNoneIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "other.py")
      << "import socket\nsocket.socket(fileno=3).sendall(b'{\"protocol\": 2, \"tasks\": "
         "null}\\n')\ninput()\n";
  WorkerOptions other = worker_of("corridors:make_env");
  other.env_python = std::string(ADTRAIN_PYTHON) + " " + (folder.path() / "other.py").string();
  const Ended protocol = play(other);
  EXPECT_EQ(protocol.code, ExitCode::kEnvironment);
  EXPECT_THAT(protocol.message, AllOf(HasSubstr("version 2"), HasSubstr("expected version 1")));

  other.env_python = "/bin/false";
  const Ended none = play(other);
  EXPECT_EQ(none.code, ExitCode::kEnvironment);
  EXPECT_THAT(none.message, AllOf(HasSubstr("exit code 1"), HasSubstr("starting")));
  other.env_python = "/no/such/python3";
  const Ended absent = play(other);
  EXPECT_EQ(absent.code, ExitCode::kUsage);
  EXPECT_THAT(absent.message,
              AllOf(HasSubstr("env_python: found '/no/such/python3'"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace adtrain
