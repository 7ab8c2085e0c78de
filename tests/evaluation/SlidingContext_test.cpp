#include "evaluation/SlidingContext.h"

#include <gtest/gtest.h>

#include "ScriptedPolicies.h"

namespace adtrain {
namespace {

TEST(SlidingContext, BeginsWithTheQueryAloneAndKeepsTheLastTransitions) {
  constexpr int64_t kRows = 3;
  RandomStream stream(7);
  for (const int64_t n_transit : {2, 3, 6}) {
    SlidingContext context(kRows, n_transit);
    std::vector<RandomStep> history;
    for (int64_t t = 0; t < 4 * n_transit; ++t) {
      const RandomStep step(stream, kRows);
      Batch shown;
      context.ask(
          [&](const Batch& batch) {
            shown = batch;
            return hash_policy(batch);
          },
          step.states);

      const int64_t length = std::min(t, n_transit - 1);
      ASSERT_EQ(shown.states.sizes(), (at::IntArrayRef{kRows, length + 1, 2}));
      EXPECT_FALSE(shown.compressed());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < length; ++i) {
          EXPECT_EQ(seen(shown, row, i),
                    history[static_cast<size_t>(t - length + i)].of_row(static_cast<size_t>(row)));
        }
        SeenTransition query{};
        std::copy_n(&step.states[static_cast<size_t>(2 * row)], 2, query.state);
        EXPECT_EQ(seen(shown, row, length), query) << "the query is a state and nothing else";
      }
      context.append(step.view());
      history.push_back(step);
    }
  }
}

TEST(SlidingContext, AFullWindowIsShownWithoutCopies) {
  RandomStream stream(8);
  SlidingContext context(2, 4);
  std::vector<const void*> places;
  for (int t = 0; t < 8; ++t) {
    const RandomStep step(stream, 2);
    context.ask(
        [&](const Batch& batch) {
          places.push_back(batch.states.const_data_ptr());
          return hash_policy(batch);
        },
        step.states);
    context.append(step.view());
  }
  for (size_t t = 4; t < 8; ++t) EXPECT_EQ(places[t], places[3]);
}

}  // namespace
}  // namespace adtrain
