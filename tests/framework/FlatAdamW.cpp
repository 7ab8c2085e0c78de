#include <cmath>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adtrain/data_parallel.h"
#include "adtrain/optimizer.h"
#include "framework/TestedGroup.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using testing::HasSubstr;
using torch::optim::AdamWOptions;

/// Rank 0's fresh_seed(), on all ranks.
uint64_t common_seed() {
  return std::stoull(group().text_of_root(std::to_string(fresh_seed())));
}

/// A network whose parameters leave gaps in the flat tensor, its gradients, and rows that only one rank has.
struct Training {
  explicit Training(uint64_t seed, at::ScalarType type = at::kFloat)
      : network(make(seed, type)), parallel(*network, group()) {}

  static torch::nn::Sequential make(uint64_t seed, at::ScalarType type) {
    torch::manual_seed(seed);
    torch::nn::Sequential network(torch::nn::Linear(5, 13), torch::nn::Tanh(), torch::nn::Linear(13, 3));
    network->to(group().device(), type);
    return network;
  }
  void backward(uint64_t seed) {
    torch::manual_seed(seed + static_cast<uint64_t>(group().rank()));
    const at::Tensor rows = 3 * torch::randn({7, 5});
    const at::TensorOptions like = network->parameters()[0].options().requires_grad(false);
    parallel.backward(network->forward(rows.to(like)).to(at::kFloat).pow(2).sum());
  }
  /// Numerically the same gradient: where one is almost zero, AdamW makes much of what rounding left in it.
  void take_gradient_of(const Training& other) {
    at::Tensor(parallel.flat_gradient()).copy_(other.parallel.flat_gradient());
  }
  void expect_close_to(const Training& other, double tolerance) const {
    for (size_t index = 0; index < network->parameters().size(); ++index) {
      const at::Tensor difference =
          parallel.main_parameters()[index].detach() - other.parallel.main_parameters()[index].detach();
      EXPECT_LT(difference.abs().max().item<double>(), tolerance) << "parameter " << index;
    }
  }

  torch::nn::Sequential network;
  DataParallel parallel;
};

TEST(FlatAdamW, FollowsTorchsAdamW) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  for (const double max_grad_norm : {0.0, 1.0}) {
    Training expected(seed), found(seed);
    const auto options = AdamWOptions(1e-2).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1);
    torch::optim::AdamW torchs(expected.parallel.main_parameters(), options);
    FlatAdamW flat(found.parallel, options, max_grad_norm);
    expected.expect_close_to(found, 1e-12);
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 3) {  // as schedulers do
        torchs.param_groups()[0].options().set_lr(3e-3);
        flat.param_groups()[0].options().set_lr(3e-3);
      }
      expected.backward(seed + 100 * step);
      found.backward(seed + 100 * step);
      found.take_gradient_of(expected);
      const double norm = expected.parallel.flat_gradient().norm().item<double>();
      if (max_grad_norm > 0) {
        torch::nn::utils::clip_grad_norm_(expected.parallel.main_parameters(), max_grad_norm);
      }
      torchs.step();
      flat.step();
      EXPECT_NEAR(flat.gradient_norm().item<double>(), norm, 1e-4 * norm);
      found.expect_close_to(expected, 2e-6);
    }
  }
}

TEST(FlatAdamW, UpdatesTheMainParametersOf16BitOnes) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  Training expected(seed, at::kBFloat16), found(seed, at::kBFloat16);
  torch::optim::AdamW torchs(expected.parallel.main_parameters(), AdamWOptions(1e-2));
  FlatAdamW flat(found.parallel, AdamWOptions(1e-2));
  const at::Tensor before = found.network->parameters()[0].detach().clone();
  expected.backward(seed);
  found.backward(seed);
  found.take_gradient_of(expected);
  torchs.step();
  flat.step();
  found.expect_close_to(expected, 2e-6);
  EXPECT_FALSE(at::equal(found.network->parameters()[0], before));
  EXPECT_TRUE(
      at::equal(found.network->parameters()[0], found.parallel.main_parameters()[0].to(at::kBFloat16)));
}

template <class Optimizer>
std::string saved(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  return bytes.str();
}

template <class Optimizer>
void load(Optimizer& optimizer, const std::string& state) {
  torch::serialize::InputArchive archive;
  std::istringstream bytes(state);
  archive.load_from(bytes, group().device());
  optimizer.load(archive);
}

void copy_values(const Training& from, Training& to) {
  const torch::NoGradGuard no_gradients;
  for (size_t index = 0; index < from.network->parameters().size(); ++index)
    to.network->parameters()[index].copy_(from.network->parameters()[index]);
}

TEST(FlatAdamW, GoesOnFromItsSavedStateExactly) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  Training whole(seed), resumed(seed + 1);
  FlatAdamW first(whole.parallel, AdamWOptions(1e-2)), second(resumed.parallel, AdamWOptions(1));
  load(second, saved(first));  // before any step
  for (uint64_t step = 0; step < 4; ++step) {
    if (step == 2) {
      load(second, saved(first));
      copy_values(whole, resumed);
    }
    whole.backward(seed + 100 * step);
    first.step();
    if (step < 2) continue;
    resumed.backward(seed + 100 * step);
    second.step();
  }
  for (size_t index = 0; index < whole.network->parameters().size(); ++index)
    EXPECT_TRUE(at::equal(whole.network->parameters()[index], resumed.network->parameters()[index]));
}

TEST(FlatAdamW, AndTorchsTakeEachOthersState) {
  const uint64_t seed = common_seed();
  SCOPED_TRACE(seed);
  Training ours(seed), theirs(seed);
  FlatAdamW flat(ours.parallel, AdamWOptions(1e-2));
  torch::optim::AdamW torchs(theirs.parallel.main_parameters(), AdamWOptions(2e-2));
  const auto step_both = [&](uint64_t step) {
    ours.backward(seed + 100 * step);
    theirs.backward(seed + 100 * step);
    theirs.take_gradient_of(ours);
    flat.step();
    torchs.step();
    ours.expect_close_to(theirs, 2e-6);
  };
  ours.backward(seed);
  flat.step();
  load(torchs, saved(flat));
  copy_values(ours, theirs);
  step_both(1);
  step_both(2);
  theirs.backward(seed + 300);
  torchs.step();
  load(flat, saved(torchs));
  copy_values(theirs, ours);
  step_both(4);
}

TEST(FlatAdamW, RefusesAStateOfOtherParametersAndKeepsItsOwn) {
  Training training(1);
  FlatAdamW flat(training.parallel, AdamWOptions(1e-2));
  training.backward(1);
  flat.step();
  const std::string before = saved(flat);
  const at::Tensor other = torch::ones({3}, group().device()).requires_grad_();
  torch::optim::AdamW fewer({other}, AdamWOptions(1e-2));
  EXPECT_THROW(load(flat, saved(fewer)), c10::Error);
  std::vector<at::Tensor> same_number;
  for (size_t index = 0; index < training.network->parameters().size(); ++index)
    same_number.push_back(torch::ones({3}, group().device()).requires_grad_());
  torch::optim::AdamW others(same_number, AdamWOptions(1e-2));
  for (at::Tensor& tensor : same_number) tensor.mutable_grad() = torch::ones_like(tensor);
  others.step();
  EXPECT_THROW(load(flat, saved(others)), c10::Error);
  EXPECT_EQ(flat.param_groups()[0].options().get_lr(), 1e-2);
  EXPECT_EQ(saved(flat).size(), before.size());
}

TEST(FlatAdamW, RefusesWhatItCannotDo) {
  Training training(1);
  const auto error_of = [&](const AdamWOptions& options, double max_grad_norm) -> std::string {
    try {
      const FlatAdamW flat(training.parallel, options, max_grad_norm);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(AdamWOptions(-1), 0), HasSubstr("learning rate is -1; expected 0 or more"));
  EXPECT_THAT(error_of(AdamWOptions().betas({0.9, 1}), 0), HasSubstr("second of betas is 1"));
  EXPECT_THAT(error_of(AdamWOptions().amsgrad(true), 0), HasSubstr("amsgrad"));
  EXPECT_THAT(error_of(AdamWOptions(), NAN), HasSubstr("max_grad_norm"));
  FlatAdamW flat(training.parallel);
  flat.add_param_group(torch::optim::OptimizerParamGroup(
      std::vector<at::Tensor>{torch::ones({2}, group().device()).requires_grad_()}));
  training.backward(1);
  EXPECT_THROW(flat.step(), std::logic_error);
}

TEST(FlatAdamW, AWholeStepInACudaGraphIsTheSame) {
  if (!group().device().is_cuda()) GTEST_SKIP() << "no GPU";
  Training eager(1), captured(1);
  FlatAdamW eagers(eager.parallel, AdamWOptions(1e-2)), captureds(captured.parallel, AdamWOptions(1e-2));
  const at::Tensor rows =
      torch::full({7, 5}, 0.1 * static_cast<double>(group().rank() + 1), group().device());
  const auto step = [&](Training& training, FlatAdamW& optimizer) {
    training.parallel.backward(training.network->forward(rows).square().mean());
    optimizer.step();
  };
  step(captured, captureds);
  for (int64_t repeat = 0; repeat < 4; ++repeat) {
    if (repeat == 2) eagers.set_learning_rate(1e-3);
    step(eager, eagers);
  }
  {
    at::cuda::CUDAGraph graph;
    c10::cuda::device_synchronize();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    step(captured, captureds);
    graph.capture_end();
    for (int64_t repeat = 1; repeat < 4; ++repeat) {
      if (repeat == 2) captureds.set_learning_rate(1e-3);
      graph.replay();
    }
    group().synchronize();
  }
  captured.expect_close_to(eager, 1e-6);
}

}  // namespace
}  // namespace adtrain
