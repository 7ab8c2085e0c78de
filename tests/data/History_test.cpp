#include "data/History.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "data/HistorySamples.h"

namespace adtrain {
namespace {

TEST(History, TellsResetStatesFromTerminalOnes) {
  History history = random_history(12, 4, 6, 3);
  EXPECT_TRUE(history.next_states_are_reset());
  int32_t& last_observation = history.next_states[history.at(5, 2) * 2];
  last_observation = (last_observation + 1) % 9;
  EXPECT_FALSE(history.next_states_are_reset());
}

TEST(History, KeepsTheFirstStreams) {
  History history = random_history(12, 4, 6, 5);
  const History whole = history;
  history.keep_streams(3);
  ASSERT_EQ(history.streams, 3);
  ASSERT_EQ(history.states.size(), 2 * 12 * 3);
  ASSERT_EQ(history.dones.size(), 12 * 3);
  EXPECT_TRUE(history.compress_markers.empty());
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t stream = 0; stream < 3; ++stream) {
      EXPECT_EQ(history.actions[history.at(step, stream)], whole.actions[whole.at(step, stream)]);
      EXPECT_EQ(history.next_states[2 * history.at(step, stream) + 1],
                whole.next_states[2 * whole.at(step, stream) + 1]);
    }
  }
}

TEST(History, FinalReturnIsThatOfTheLastWholeEpisode) {
  History history = random_history(5, 2, 2, 4);  // episodes end after steps 1 and 3; step 4 begins another
  history.rewards = {1, 1, 1, 1, /**/ 2, 0, 3, 1, /**/ 9, 9};
  EXPECT_EQ(history.final_return(), (2 + 3 + 0 + 1) / 2.0);
  std::fill(history.dones.begin(), history.dones.end(), 0);
  EXPECT_EQ(history.final_return(), (16 + 12) / 2.0);
}

}  // namespace
}  // namespace adtrain
