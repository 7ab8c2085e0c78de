#include "data/HistoryReplay.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "data/HistorySamples.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TaskFamily family_of(const std::string& env, int64_t grid_size = 5, int64_t horizon = 8) {
  EnvironmentOptions options;
  options.env = env;
  options.grid_size = grid_size;
  options.horizon = horizon;
  return TaskFamily::of(options);
}

/// What a replay of task 7 of `env` complains about after `spoil`.
std::string complaint(const std::string& env, const std::function<void(History&)>& spoil) {
  const TaskFamily family = family_of(env);
  History history = lived_history(family, 7, 40, 3, 11);
  spoil(history);
  try {
    check_by_replay("h.hdf5", 7, history, family);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no complaint";
}

TEST(HistoryReplay, AcceptsWhatAnyTaskOfAnyFamilyGives) {
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    const TaskFamily family = family_of(env, 3, 7);
    for (int64_t task = 0; task < family.task_count(); ++task) {
      for (const bool terminal : {false, true}) {
        const History history = lived_history(family, task, 40, 4, static_cast<uint64_t>(task), terminal);
        EXPECT_NO_THROW(check_by_replay("h.hdf5", task, history, family)) << env << " " << task;
      }
    }
  }
}

TEST(HistoryReplay, ActionsInAnotherOrderAreNamedWithTheirMoves) {
  // The environment of the file has its first two axes exchanged: 0 and 1 move along y.
  const TaskFamily family = family_of("darkroom");
  History history = lived_history(family, 7, 40, 3, 11);
  for (int32_t& action : history.actions) action = action < 4 ? (action + 2) % 4 : action;
  history.actions[4] = 0;  // step 1, stream 1, from (2, 2) or beside it
  try {
    check_by_replay("h.hdf5", 7, history, family);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("h.hdf5: task 7, stream "), HasSubstr(", step 0: action "),
                                    HasSubstr(" moved ("), HasSubstr("), expected ("),
                                    HasSubstr("docs/history-format.md")));
  }
}

TEST(HistoryReplay, SaysWhichActionMovedHowAndWhere) {
  EXPECT_THAT(complaint("darkroom",
                        [](History& history) {
                          history.actions[2] = 0;  // step 0, stream 2, from (2, 2)
                          history.next_states[4] = 2;
                          history.next_states[5] = 3;
                        }),
              HasSubstr("task 7, stream 2, step 0: action 0 moved (0,+1), expected (+1,0), from (2, 2)."));
}

TEST(HistoryReplay, ContradictionsInEveryColumnAreFound) {
  EXPECT_THAT(complaint("darkroom", [](History& history) { history.states[0] = 3; }),
              HasSubstr("stream 0, step 0: an episode started at (3, 2), expected (2, 2)"));
  EXPECT_THAT(
      complaint("darkroompermuted", [](History& history) { history.states[2 * history.at(11, 1)] ^= 1; }),
      HasSubstr("stream 1, step 11: the state is ("));
  EXPECT_THAT(complaint("darkroom", [](History& history) { history.rewards[history.at(9, 2)] = 5; }),
              HasSubstr("stream 2, step 9: the reward is 5, expected "));
  EXPECT_THAT(complaint("darkkeytodoor", [](History& history) { history.rewards[history.at(39, 0)] = -1; }),
              AllOf(HasSubstr("stream 0, step 39: the reward is -1"), HasSubstr("the key (0, 0)")));
  EXPECT_THAT(complaint("darkroom", [](History& history) { history.dones[history.at(7, 1)] = 0; }),
              HasSubstr("stream 1, step 7: an episode went on, expected episodes of 8 steps (horizon)"));
  EXPECT_THAT(complaint("darkroom", [](History& history) { history.next_states[2 * history.at(7, 1)] = 0; }),
              AllOf(HasSubstr("stream 1, step 7: action "), HasSubstr("or the reset to (2, 2)")));
  EXPECT_EQ(complaint("darkroom", [](History&) {}), "no complaint");
}

TEST(HistoryReplay, AnotherHorizonIsNamed) {
  const History history = lived_history(family_of("darkroom", 5, 8), 7, 40, 3, 11);
  try {
    check_by_replay("h.hdf5", 7, history, family_of("darkroom", 5, 12));
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 7: an episode ended, expected episodes of 12 steps (horizon)"));
  }
}

}  // namespace
}  // namespace adtrain
