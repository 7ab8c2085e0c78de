#include "evaluation/RegionContext.h"

#include <gtest/gtest.h>

#include "ScriptedPolicies.h"

namespace adtrain {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kInterval = 5;

/// A policy that ends the regions of the rows that it is told to, and keeps all it was shown. Its action
/// logits of a row are (number of the call, row of the call, 0, 0, 0).
struct ScriptedCloser {
  std::vector<bool> closes = std::vector<bool>(kRows);
  std::vector<Batch> shown;

  Predictor predictor() {
    return [this](const Batch& batch) {
      Batch copy = batch;
      for (at::Tensor* part : {&copy.states, &copy.actions, &copy.rewards, &copy.next_states})
        *part = part->clone();
      shown.push_back(copy);
      AlgorithmDistillation::Predictions predictions{at::zeros({batch.size(), 5}),
                                                     at::zeros({batch.size(), 3})};
      predictions.actions.select(1, 0).fill_(std::ssize(shown));
      predictions.actions.select(1, 1).copy_(at::arange(batch.size()));
      const bool again = shown.size() > 1;  // whoever has closed a region would close the empty one as well
      for (int64_t row = 0; row < batch.size(); ++row) {
        if (again || closes[static_cast<size_t>(row)])
          predictions.token_types[row][TokenType::kEndCompress] = 1;
      }
      return predictions;
    };
  }
};

using Region = std::vector<SeenTransition>;

/// The protocol in plain words, for one row.
struct Reference {
  Region previous, current;

  bool close_if(bool emitted) {
    if (std::ssize(current) < kInterval && !(emitted && !current.empty())) return false;
    previous = std::move(current);
    current.clear();
    return true;
  }
};

void expect_row(const Batch& batch, int64_t row, const Reference& reference, const int32_t* query) {
  ASSERT_EQ(batch.states.size(1), 2 * kInterval);
  EXPECT_EQ(batch.previous[row].item<int64_t>(), std::ssize(reference.previous));
  EXPECT_EQ(batch.current[row].item<int64_t>(), std::ssize(reference.current));
  Region expected = reference.previous;
  expected.insert(expected.end(), reference.current.begin(), reference.current.end());
  expected.resize(2 * kInterval, SeenTransition{});
  for (int64_t i = 0; i < 2 * kInterval; ++i)
    EXPECT_EQ(seen(batch, row, i), expected[static_cast<size_t>(i)]);
  for (int64_t axis = 0; axis < 2; ++axis)
    EXPECT_EQ(batch.query_state[row][axis].item<int32_t>(), query[axis]);
}

TEST(RegionContext, ClosesRegionsRowByRowAsTheModelOrTheCountSays) {
  RandomStream stream(3);
  RegionContext context(kRows, kInterval);
  std::vector<Reference> references(kRows);
  int64_t closed_by_count = 0;
  int64_t closed_by_model = 0;
  for (int t = 0; t < 200; ++t) {
    const RandomStep step(stream, kRows);
    ScriptedCloser closer;
    for (int64_t row = 0; row < kRows; ++row) closer.closes[static_cast<size_t>(row)] = stream.below(6) == 0;
    const at::Tensor logits = context.ask(closer.predictor(), step.states);

    std::vector<int64_t> again;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto i = static_cast<size_t>(row);
      expect_row(closer.shown.front(), row, references[i], &step.states[2 * i]);
      const bool full = std::ssize(references[i].current) == kInterval;
      if (!references[i].close_if(closer.closes[i])) {
        EXPECT_EQ(logits[row][0].item<int64_t>(), 1) << "a row that closes nothing is asked once";
        EXPECT_EQ(logits[row][1].item<int64_t>(), row);
        continue;
      }
      (full ? closed_by_count : closed_by_model) += 1;
      EXPECT_EQ(logits[row][0].item<int64_t>(), 2) << "a row that closes a region is asked again at once";
      EXPECT_EQ(logits[row][1].item<int64_t>(), std::ssize(again));
      again.push_back(row);
    }
    ASSERT_EQ(closer.shown.size(), again.empty() ? 1U : 2U);
    if (!again.empty()) {
      ASSERT_EQ(closer.shown.back().size(), std::ssize(again))
          << "rows that closed nothing must not be asked again";
      for (size_t i = 0; i < again.size(); ++i) {
        const auto row = static_cast<size_t>(again[i]);
        expect_row(closer.shown.back(), static_cast<int64_t>(i), references[row], &step.states[2 * row]);
      }
    }
    context.append(step.view());
    for (size_t row = 0; row < references.size(); ++row) references[row].current.push_back(step.of_row(row));
  }
  EXPECT_GT(closed_by_count, 10);
  EXPECT_GT(closed_by_model, 10);
}

TEST(RegionContext, AnEmptyRegionCannotBeClosed) {
  RandomStream stream(4);
  const RandomStep step(stream, kRows);
  RegionContext context(kRows, kInterval);
  ScriptedCloser closer;
  closer.closes.assign(kRows, true);
  context.ask(closer.predictor(), step.states);
  EXPECT_EQ(closer.shown.size(), 1U);
}

}  // namespace
}  // namespace adtrain
