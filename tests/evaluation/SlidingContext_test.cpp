#include "evaluation/SlidingContext.h"

#include <algorithm>
#include <vector>

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

/// By the definition, over all that a row has seen: where its context begins after so many steps.
int64_t forgotten_before(const std::vector<RandomStep>& history, size_t row, int64_t window, int64_t horizon,
                         int64_t forget) {
  int64_t begin = 0;
  for (int64_t end = horizon; end <= std::ssize(history); end += horizon) {
    const auto earns = [&](int64_t first) {
      for (int64_t t = first; t < end; ++t) {
        if (history[static_cast<size_t>(t)].rewards[row] != 0) return true;
      }
      return false;
    };
    if (end - forget * horizon < begin) continue;  // there are not so many episodes yet
    if (!earns(end - forget * horizon) && !earns(std::max(begin, end - window))) begin = end;
  }
  return begin;
}

TEST(SlidingContext, ForgetsWhatEarnedNothing) {
  constexpr int64_t kRows = 5, kHorizon = 3;
  int64_t emptied = 0, uneven = 0;
  for (const int64_t n_transit : {5, 8, 14}) {
    for (const int64_t forget : {1, 2, 3}) {
      RandomStream stream(static_cast<uint64_t>(10 * n_transit + forget));
      SlidingContext context(kRows, n_transit, {}, forget);
      std::vector<RandomStep> history;
      for (int64_t t = 0; t < 90; ++t) {
        RandomStep step(stream, kRows);
        for (float& reward : step.rewards) reward = stream.below(8) == 0 ? 1.0F : 0.0F;
        std::vector<std::vector<SeenTransition>> shown;
        const at::Tensor logits = context.ask(
            [&](const Batch& batch) {
              for (int64_t row = 0; row < batch.size(); ++row) {
                shown.emplace_back();
                for (int64_t i = 0; i < batch.states.size(1); ++i)
                  shown.back().push_back(seen(batch, row, i));
              }
              return hash_policy(batch);
            },
            step.states);
        ASSERT_EQ(std::ssize(shown), kRows) << "every row is asked once";
        for (int64_t row = 0; row < kRows; ++row) {
          const auto at = static_cast<size_t>(row);
          const int64_t begin =
              std::max(t - (n_transit - 1), forgotten_before(history, at, n_transit - 1, kHorizon, forget));
          std::vector<SeenTransition> expected;
          for (int64_t i = std::max<int64_t>(begin, 0); i < t; ++i)
            expected.push_back(history[static_cast<size_t>(i)].of_row(at));
          SeenTransition query{};
          std::copy_n(&step.states[2 * at], 2, query.state);
          expected.push_back(query);
          ASSERT_GE(std::ranges::count(shown, expected), 1) << "row " << row << " at step " << t;
          Batch alone;
          alone.states = at::zeros({1, std::ssize(expected), 2}, at::kInt);
          alone.actions = at::zeros({1, std::ssize(expected)}, at::kInt);
          alone.rewards = at::zeros({1, std::ssize(expected)}, at::kFloat);
          alone.next_states = at::zeros({1, std::ssize(expected), 2}, at::kInt);
          for (int64_t i = 0; i < std::ssize(expected); ++i) {
            const SeenTransition& transition = expected[static_cast<size_t>(i)];
            for (int64_t axis = 0; axis < 2; ++axis) {
              alone.states[0][i][axis] = transition.state[axis];
              alone.next_states[0][i][axis] = transition.next_state[axis];
            }
            alone.actions[0][i] = transition.action;
            alone.rewards[0][i] = transition.reward;
          }
          ASSERT_TRUE(hash_policy(alone).actions[0].equal(logits[row])) << "row " << row << " at step " << t;
          emptied += expected.size() == 1 && t > 0 ? 1 : 0;
          uneven += shown.front().size() != shown.back().size() ? 1 : 0;
        }
        StepOfRows view = step.view();
        const std::vector<uint8_t> ended(kRows, (t + 1) % kHorizon == 0 ? 1 : 0);
        view.ended = ended;
        context.append(view);
        history.push_back(step);
      }
    }
  }
  EXPECT_GT(emptied, 100);
  EXPECT_GT(uneven, 100);
}

}  // namespace
}  // namespace adtrain
