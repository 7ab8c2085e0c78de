#include <new>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adtrain/batch_size.h"
#include "adtrain/error.h"
#include "framework/TestedGroup.h"

namespace adtrain {
namespace {

bool last_rank() {
  return group().rank() == group().world_size() - 1;
}

TEST(FindBatchSize, TheTightestRankDecidesForAll) {
  const BatchSizeDecision found = find_batch_size(group(), {}, [](int64_t batch) {
    if (batch > (last_rank() ? 19 : 700)) throw std::bad_alloc();
    return 0.001;
  });
  EXPECT_EQ(found.largest, 19);
  EXPECT_EQ(found.batch, 18);
  // All ranks have made the same trials.
  at::Tensor mine = torch::zeros({16}, torch::kLong);
  for (size_t k = 0; k < found.trials.size() && k < 16; ++k)
    mine[static_cast<int64_t>(k)] = found.trials[k].batch;
  at::Tensor sum = mine.clone();
  group().all_reduce(sum);
  EXPECT_TRUE(at::equal(sum, mine * group().world_size()));
}

TEST(FindBatchSize, ARefusalInTheMiddleOfAStepHarmsNobody) {
  torch::nn::Linear network(8, 8);
  network->to(group().device());
  const BatchSizeDecision found = find_batch_size(group(), {.largest = 64}, [&](int64_t batch) {
    const at::Tensor loss = network->forward(torch::ones({batch, 8}, group().device())).sum();
    if (batch > 10 && last_rank()) {
      loss.register_hook([](const at::Tensor&) -> void { throw std::bad_alloc(); });
    }
    loss.backward();
    return 0.001;
  });
  EXPECT_EQ(found.largest, 10);
  at::Tensor one = torch::ones({1}, torch::kFloat);
  group().all_reduce(one);
  EXPECT_EQ(one.item<float>(), static_cast<float>(group().world_size())) << "the group works on";
}

TEST(FindBatchSize, WhereNothingFitsEveryRankLearnsIt) {
  try {
    find_batch_size(group(), {}, [](int64_t) -> double {
      if (last_rank()) throw std::bad_alloc();
      return 0.001;
    });
    FAIL() << "a decision";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(exit_code_of(error), 8) << error.what();
  }
}

}  // namespace
}  // namespace adtrain
