#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/record_function.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adtrain/data_parallel.h"
#include "adtrain/error.h"
#include "framework/TestedGroup.h"

namespace adtrain {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kRows = 8;  ///< of a micro-batch
constexpr DataParallelOptions kSmallBuckets{.bucket_bytes = 512, .first_bucket_bytes = 128};

/// A network with a buffer of whole numbers (the batch norm's count) and values that depend on `seed`.
torch::nn::Sequential make_network(int64_t seed, at::ScalarType type = at::kFloat) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  torch::nn::Sequential network(torch::nn::Linear(5, 16), torch::nn::Tanh(), torch::nn::BatchNorm1d(16),
                                torch::nn::Linear(16, 3));
  network->to(group().device(), type);
  network->eval();  // rows do not depend on each other, so that a global batch is the sum of its parts
  return network;
}

/// The mean over a rank's rows of one micro-step. 8, 16 … rows at once are those of several ranks.
at::Tensor loss_of(torch::nn::Sequential& network, int64_t micro_step, int64_t first_rank, int64_t ranks) {
  const at::Tensor all = torch::sin(torch::arange(64 * kRows * 5, torch::kFloat)).view({64 * kRows, 5});
  const int64_t begin = (micro_step * 16 + first_rank) * kRows;
  const at::Tensor x =
      all.narrow(0, begin, ranks * kRows).to(group().device(), network->parameters()[0].scalar_type());
  return network->forward(x).to(at::kFloat).square().mean();
}

std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad().clone());
  return gradients;
}

void expect_close(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected,
                  double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t index = 0; index < found.size(); ++index) {
    const double difference =
        (found[index].to(at::kFloat) - expected[index].to(at::kFloat)).abs().max().item<double>();
    EXPECT_LT(difference, tolerance) << "parameter " << index;
  }
}

/// Without any ranks: the whole batch of all of them.
std::vector<at::Tensor> gradients_of_the_global_batch(int64_t micro_steps) {
  torch::nn::Sequential network = make_network(0);
  for (int64_t micro = 0; micro < micro_steps; ++micro)
    (loss_of(network, micro, 0, group().world_size()) / micro_steps).backward();
  return gradients_of(network->parameters());
}

TEST(DataParallel, AllRanksBeginWithTheValuesOfRankZero) {
  torch::nn::Sequential network = make_network(group().rank());
  network[2]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.fill_(group().rank() + 5);
  const DataParallel parallel(*network, group());
  expect_close(network->parameters(), make_network(0)->parameters(), 1e-12);
  EXPECT_EQ(network[2]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.item<int64_t>(), 5);
}

TEST(DataParallel, GradientsAreThoseOfTheGlobalBatch) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group(), kSmallBuckets);
  for (int64_t repeat = 0; repeat < 2; ++repeat) {
    parallel.backward(loss_of(network, 0, group().rank(), 1));
    expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(1), 1e-6);
  }
}

TEST(DataParallel, MicroStepsAddUpAndOnlyTheLastCommunicates) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group(), kSmallBuckets);
  for (int64_t micro = 0; micro < 3; ++micro)
    parallel.backward(loss_of(network, micro, group().rank(), 1) / 3, micro == 2);
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(3), 1e-6);
}

TEST(DataParallel, MicroStepsAreAveragedWhereOptionsSaySo) {
  torch::nn::Sequential network = make_network(0);
  DataParallelOptions options = kSmallBuckets;
  options.micro_steps = 3;
  DataParallel parallel(*network, group(), options);
  for (int64_t micro = 0; micro < 3; ++micro)
    parallel.backward(loss_of(network, micro, group().rank(), 1), micro == 2);
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(3), 1e-6);
  options.micro_steps = 0;
  EXPECT_THROW(DataParallel(*network, group(), options), std::invalid_argument);
}

/// What libtorch is told to do while `work` goes on, by whatever thread.
template <class Work>
std::set<std::string> operations_of(const Work& work) {
  static std::mutex mutex;
  static std::set<std::string> names;
  names.clear();
  const at::CallbackHandle handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                           -> std::unique_ptr<at::ObserverContext> {
                              const std::lock_guard lock(mutex);
                              names.insert(function.name());
                              return nullptr;
                            }).scopes({at::RecordScope::FUNCTION}));
  work();
  at::removeCallback(handle);
  const std::lock_guard lock(mutex);
  return names;
}

TEST(DataParallel, AGradientIsTakenByOneOperation) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group());
  at::Tensor(parallel.flat_gradient()).fill_(7);  // of another step: nobody sets it to zero
  const at::Tensor loss = loss_of(network, 0, group().rank(), 1);
  const std::set<std::string> operations = operations_of([&] { parallel.backward(loss); });
  EXPECT_THAT(operations, Contains(group().world_size() > 1 ? "aten::mul" : "aten::copy_"));
  for (const char* second_pass : {"aten::add_", "aten::mul_", "aten::div_", "aten::clone"})
    EXPECT_THAT(operations, Not(Contains(second_pass)));
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(1), 1e-6);
}

/// Between buckets' small gradients lie some that are large enough not to be copied before they are summed.
TEST(DataParallel, LargeGradientsAreThoseOfTheGlobalBatchToo) {
  const auto make = [] {
    torch::manual_seed(3);
    torch::nn::Sequential network(torch::nn::Linear(64, 700), torch::nn::Tanh(), torch::nn::Linear(700, 600),
                                  torch::nn::Tanh(), torch::nn::Linear(600, 500), torch::nn::Linear(500, 2));
    network->to(group().device(), at::kFloat);
    return network;
  };
  const auto loss_of_rows = [](torch::nn::Sequential& network, int64_t step, int64_t first, int64_t count) {
    torch::manual_seed(static_cast<uint64_t>(step));
    const at::Tensor all = torch::randn({4 * group().world_size(), 64});
    return network->forward(all.narrow(0, 4 * first, 4 * count).to(group().device())).square().mean();
  };
  torch::nn::Sequential network = make(), whole = make();
  DataParallel parallel(*network, group(), {.bucket_bytes = 2 << 20, .first_bucket_bytes = 1 << 10});
  for (int64_t step = 0; step < 3; ++step) {
    whole->zero_grad();
    if (step == 1) {  // the first micro-step's gradients are copied, the second's added
      parallel.backward(loss_of_rows(network, 7, group().rank(), 1), /*last_micro_step=*/false);
      loss_of_rows(whole, 7, 0, group().world_size()).backward();
    }
    parallel.backward(loss_of_rows(network, step, group().rank(), 1));
    loss_of_rows(whole, step, 0, group().world_size()).backward();
    expect_close(gradients_of(network->parameters()), gradients_of(whole->parameters()), 1e-5);
  }
}

TEST(DataParallel, ASumIsNotDivided) {
  torch::nn::Sequential network = make_network(0);
  DataParallelOptions options = kSmallBuckets;
  options.average = false;
  DataParallel parallel(*network, group(), options);
  parallel.backward(loss_of(network, 0, group().rank(), 1) / group().world_size());
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(1), 1e-6);
}

TEST(DataParallel, ZeroGradDoesNoHarmBetweenStepsAndIsFoundWithin) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group());
  torch::optim::SGD optimizer(parallel.main_parameters(), 0.0);
  for (int64_t repeat = 0; repeat < 2; ++repeat) {
    optimizer.zero_grad();
    parallel.backward(loss_of(network, 0, group().rank(), 1));
    optimizer.step();
  }
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(1), 1e-6);
  parallel.backward(loss_of(network, 0, group().rank(), 1), false);
  optimizer.zero_grad();
  EXPECT_THROW(parallel.backward(loss_of(network, 1, group().rank(), 1)), std::logic_error);
}

TEST(DataParallel, ASecondBackwardPassOfAMicroStepIsFound) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group());
  parallel.begin_micro_step(false);
  loss_of(network, 0, group().rank(), 1).backward();
  EXPECT_THROW(loss_of(network, 1, group().rank(), 1).backward(), std::logic_error);
}

TEST(DataParallel, GradientsWithAGraphOfTheirOwnAreFound) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group());
  parallel.begin_micro_step(false);
  const at::Tensor loss = loss_of(network, 0, group().rank(), 1);
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true), std::logic_error);
}

TEST(DataParallel, ABackwardPassBetweenStepsIsNoneOfItsBusiness) {
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group());
  loss_of(network, 1, group().rank(), 1).backward();
  parallel.backward(loss_of(network, 0, group().rank(), 1));
  expect_close(gradients_of(network->parameters()), gradients_of_the_global_batch(1), 1e-6);
}

TEST(DataParallel, MainGradientsOfShortParametersAreKeptInFloat32) {
  torch::nn::Sequential network = make_network(0);
  network[0]->to(at::kBFloat16);  // after it the others stay as they are
  network[3]->to(at::kBFloat16);
  const auto forward = [&](int64_t micro) {
    const at::Tensor x = torch::full({kRows, 5}, 0.1 * static_cast<double>(micro + group().rank() + 1),
                                     at::TensorOptions(group().device()).dtype(at::kBFloat16));
    const at::Tensor hidden = torch::tanh(network[0]->as<torch::nn::Linear>()->forward(x)).to(at::kFloat);
    const at::Tensor normed = network[2]->as<torch::nn::BatchNorm1d>()->forward(hidden);
    return network[3]->as<torch::nn::Linear>()->forward(normed.to(at::kBFloat16)).to(at::kFloat).mean();
  };
  // By autograd alone, each micro-step's gradient added in float32.
  std::vector<at::Tensor> expected;
  for (int64_t micro = 0; micro < 2; ++micro) {
    forward(micro).backward();
    for (size_t index = 0; index < network->parameters().size(); ++index) {
      at::Tensor gradient = network->parameters()[index].grad().to(at::kFloat);
      if (micro == 0) expected.push_back(gradient);
      if (micro == 1) expected[index] = expected[index] + gradient;
      network->parameters()[index].mutable_grad() = at::Tensor();
    }
  }
  for (at::Tensor& gradient : expected) {
    gradient = gradient.contiguous();
    group().all_reduce(gradient);
    gradient.div_(group().world_size());
  }
  DataParallel parallel(*network, group());
  for (int64_t micro = 0; micro < 2; ++micro) parallel.backward(forward(micro), micro == 1);
  expect_close(gradients_of(parallel.main_parameters()), expected, 1e-6);
  EXPECT_FALSE(network[0]->as<torch::nn::Linear>()->weight.grad().defined());

  const at::Tensor main = parallel.main_parameters()[0], weight = network[0]->as<torch::nn::Linear>()->weight;
  EXPECT_EQ(main.scalar_type(), at::kFloat);
  torch::optim::SGD optimizer(parallel.main_parameters(), 0.5);
  optimizer.step();
  parallel.update_parameters();
  EXPECT_TRUE(at::equal(weight, main.to(at::kBFloat16)));
  expect_close({weight - main}, {at::zeros_like(main)}, 1e-2);
}

TEST(DataParallel, ListsOfTensorsAndThoseThatNoLossUses) {
  const at::TensorOptions here(group().device());
  const std::vector<at::Tensor> parameters = {torch::full({3}, 2.0, here).requires_grad_(),
                                              torch::ones({4}, here).requires_grad_()};
  DataParallel parallel(parameters, group());
  parallel.backward(parameters[0].square().sum());
  EXPECT_EQ(parameters[0].grad()[1].item<double>(), 4);
  EXPECT_EQ(parameters[1].grad().abs().max().item<double>(), 0);
}

TEST(DataParallel, ParametersThatSomeMicroStepsUse) {
  const at::TensorOptions here(group().device());
  const std::vector<at::Tensor> parameters = {torch::full({3}, 2.0, here).requires_grad_(),
                                              torch::ones({4}, here).requires_grad_(),
                                              torch::ones({5}, here).requires_grad_()};
  DataParallel parallel(parameters, group(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
  for (int64_t repeat = 0; repeat < 2; ++repeat) {
    for (const at::Tensor& parameter : parallel.main_parameters()) parameter.grad().fill_(7);
    parallel.backward(parameters[0].square().sum(), false);
    parallel.backward((parameters[0].square().sum() + 3 * parameters[1].sum()), false);
    parallel.backward(parameters[1].square().sum());
    EXPECT_EQ(parameters[0].grad()[1].item<double>(), 8);
    EXPECT_EQ(parameters[1].grad()[2].item<double>(), 5);
    EXPECT_EQ(parameters[2].grad().abs().max().item<double>(), 0);
  }
}

/// Ranks that use parameters differently still sum the same buckets in the same way.
TEST(DataParallel, LargeParametersThatSomeRanksUse) {
  const at::TensorOptions here(group().device());
  const auto ones = [&](int64_t size) { return torch::ones({size}, here).requires_grad_(); };
  const std::vector<at::Tensor> parameters = {ones(5), ones(300'000), ones(7), ones(400'000), ones(3)};
  DataParallel parallel(parameters, group());
  const double ranks = static_cast<double>(group().world_size());
  for (int64_t repeat = 0; repeat < 3; ++repeat) {
    // Parameter 1 is rank 0's alone; the last rank uses parameter 3 in the first micro-step, others in the
    // second.
    const at::Tensor small = parameters[0].sum() + parameters[2].sum() + parameters[4].sum();
    const bool last = group().rank() + 1 == group().world_size();
    at::Tensor first = small * 1, second = small * 2;
    (last ? first : second) += 3 * parameters[3].sum();
    if (group().is_root()) second += 5 * parameters[1].sum();
    parallel.backward(first, /*last_micro_step=*/false);
    parallel.backward(second);
    for (const size_t index : {0, 2, 4}) EXPECT_EQ(parameters[index].grad()[1].item<double>(), 3) << index;
    EXPECT_NEAR(parameters[1].grad()[299'999].item<double>(), 5 / ranks, 1e-6);
    EXPECT_NEAR(parameters[3].grad()[399'999].item<double>(), 3, 1e-6);
  }
}

TEST(DataParallel, SparseGradientsAreTakenToo) {
  torch::manual_seed(0);
  torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(6, 2).sparse(true));
  embedding->to(group().device());
  DataParallel parallel(*embedding, group());
  at::Tensor(parallel.flat_gradient()).fill_(7);
  const at::Tensor rows = torch::tensor({1, 4, 4}, torch::kLong).to(group().device());
  parallel.backward(embedding->forward(rows).sum());
  const at::Tensor gradient = embedding->weight.grad().cpu();
  EXPECT_TRUE(at::equal(gradient.select(1, 1), torch::tensor({0, 1, 0, 0, 2, 0}, torch::kFloat))) << gradient;
}

TEST(DataParallel, AParameterThatIsGivenTwiceCountsOnce) {
  const at::Tensor shared = torch::full({3}, 2.0, at::TensorOptions(group().device())).requires_grad_();
  DataParallel parallel({shared, shared}, group());
  ASSERT_EQ(parallel.main_parameters().size(), 1);
  parallel.backward((shared * shared).sum());
  EXPECT_EQ(shared.grad()[0].item<double>(), 4);
}

TEST(DataParallel, SaysWhatIsWrongWithAParameter) {
  torch::nn::Sequential network(torch::nn::Linear(2, 2));
  network->to(group().device());
  network->to(at::kDouble);
  try {
    const DataParallel parallel(*network, group());
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("Parameter 0.weight is a leaf of Double on"));
  }
  for (at::Tensor& parameter : network->parameters()) parameter.requires_grad_(false);
  EXPECT_THROW(DataParallel(*network, group()), std::invalid_argument);
}

TEST(DataParallel, NetworksThatDifferBetweenRanksAreFoundOnAllOfThem) {
  if (group().world_size() == 1) return;
  torch::nn::Sequential network(torch::nn::Linear(2, 2 + group().rank()));
  network->to(group().device());
  try {
    const DataParallel parallel(*network, group());
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_EQ(exit_code_of(error), 3);
    EXPECT_THAT(error.what(), HasSubstr("Float(2x2) Float(2)"));
  }
}

TEST(DataParallel, AStepInACudaGraphIsTheSame) {
  if (!group().device().is_cuda()) GTEST_SKIP() << "no GPU";
  torch::nn::Sequential network = make_network(0);
  DataParallel parallel(*network, group(), kSmallBuckets);
  const at::Tensor rows = torch::full({kRows, 5}, 0.1 * static_cast<double>(group().rank() + 1),
                                      at::TensorOptions(group().device()));
  const auto step = [&] { parallel.backward(network->forward(rows).square().mean()); };
  step();
  group().synchronize();
  const at::Tensor eager = parallel.flat_gradient().clone();
  {
    at::cuda::CUDAGraph graph;
    c10::cuda::device_synchronize();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    step();
    graph.capture_end();
    for (const at::Tensor& parameter : parallel.main_parameters()) parameter.grad().fill_(7);
    for (int64_t repeat = 0; repeat < 3; ++repeat) graph.replay();
    group().synchronize();
  }
  EXPECT_LT((parallel.flat_gradient() - eager).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace adtrain
