#include "collection/own/TaskRecorder.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace adtrain {
namespace {

/// Of histories of 20 steps, each of which pays the number of its step: one list for each history, of the
/// steps with which its episodes end.
std::optional<double> final_return_of(const std::vector<std::vector<int64_t>>& ends) {
  constexpr int64_t kSteps = 20;
  const Space space = Space::discrete(2);
  TaskRecorder recorder(space, space, std::ssize(ends), kSteps);
  const std::vector<std::byte> rows(ends.size() * size_of(space.type));
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<uint8_t> ended;
    for (const std::vector<int64_t>& of_stream : ends)
      ended.push_back(static_cast<uint8_t>(std::ranges::count(of_stream, step)));
    const std::vector<double> rewards(ends.size(), static_cast<double>(step));
    const std::vector<uint8_t> terminated(ends.size());
    recorder.observe(rows);
    recorder.step(rows, rewards, ended, terminated);
  }
  return recorder.final_return();
}

TEST(TaskRecorder, TheFinalReturnIsOfTheEpisodesThatEndInTheLastTenth) {
  EXPECT_EQ(final_return_of({{16, 18, 19}}), (17 + 18 + 19) / 2.0);
  EXPECT_EQ(final_return_of({{1, 17, 19}, {0, 4}}), 18 + 19) << "of the second history none ends there";
}

TEST(TaskRecorder, ElseItIsOfTheLastWholeEpisodes) {
  EXPECT_EQ(final_return_of({{2, 4, 17}, {3}, {}}), (143 + 6) / 2.0);
  EXPECT_EQ(final_return_of({{}, {}}), std::nullopt) << "what a part of an episode earns is no return";
}

}  // namespace
}  // namespace adtrain
