// The tokens of GPT-2's networks and their gradients by kernels, on a GPU or emulated, against plain
// operators in double precision.

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "kernels/GradientSink.h"
#include "kernels/WithHalf.h"
#include "kernels/embedding/FusedStepEmbedding.h"

namespace adtrain {
namespace {

struct Case {
  std::string name;
  int64_t sequences, states, width;
  int64_t grid_size = 9, actions = 5;
  bool long_one = false;  ///< for a GPU
  at::ScalarType type = at::kBFloat16;
};

class StepEmbedding : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const auto device = testing::fused_device();
    if (!device) GTEST_SKIP() << "no GPU here";
    const auto& [name, sequences, states, width, grid_size, actions, long_one, type] = GetParam();
    if (long_one && device->device.is_cpu()) GTEST_SKIP() << "takes long in emulation";
    device_ = device->device;
    const auto whole = at::device(device_).dtype(at::kInt);
    columns_ = {at::randint(grid_size, {sequences, states, 2}, whole),
                at::randint(actions, {sequences, states}, whole),
                at::randn({sequences, states}, at::device(device_))};
    // The last action and reward are not read: nothing of them may come through.
    columns_.actions.select(1, states - 1).fill_(1 << 30);
    columns_.rewards.select(1, states - 1).fill_(NAN);
    parameters_ = {random_leaf({grid_size * grid_size, width}), random_leaf({actions, width}),
                   random_leaf({width, 1}), random_leaf({width}), random_leaf({3 * states + 4, width})};
  }

  at::Tensor random_leaf(at::IntArrayRef sizes) const {
    return at::randn(sizes, at::device(device_)).to(GetParam().type).set_requires_grad(true);
  }
  /// How far the type may round.
  static double tolerance() { return GetParam().type == at::kHalf ? 5e-4 : 4e-3; }

  at::Tensor found(MainGradients* main_gradients = nullptr) const {
    return kernels::fused_step_embedding(
        columns_, GetParam().grid_size,
        {parameters_[0], parameters_[1], parameters_[2], parameters_[3], parameters_[4]}, main_gradients);
  }
  at::Tensor expected(const std::vector<at::Tensor>& p) const {
    const int64_t before = GetParam().states - 1;
    const at::Tensor cells =
        (columns_.states.select(2, 0) * GetParam().grid_size + columns_.states.select(2, 1)).to(at::kLong);
    const at::Tensor states = at::embedding(p[0], cells),
                     actions = at::embedding(p[1], columns_.actions.narrow(1, 0, before).to(at::kLong)),
                     rewards = at::linear(columns_.rewards.narrow(1, 0, before).unsqueeze(-1).to(at::kDouble),
                                          p[2], p[3]);
    const at::Tensor steps = at::stack({states.narrow(1, 0, before), actions, rewards}, 2).flatten(1, 2);
    return at::cat({steps, states.narrow(1, before, 1)}, 1) + p[4].narrow(0, 0, 3 * before + 1);
  }

  at::Device device_ = at::kCPU;
  kernels::StepColumns columns_;
  std::vector<at::Tensor> parameters_;
};

TEST_P(StepEmbedding, IsThatOfThePlainOperators) {
  testing::expect_embedding_is_the_reference([&](MainGradients* to) { return found(to); },
                                             [&](const auto& exact) { return expected(exact); }, parameters_,
                                             tolerance());
}

TEST_P(StepEmbedding, TakesRowsOfAnyStrides) {
  const at::Tensor x = found();
  columns_.states = columns_.states.transpose(0, 1).contiguous().transpose(0, 1);
  columns_.rewards = columns_.rewards.t().contiguous().t();
  EXPECT_TRUE(at::equal(x, found()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StepEmbedding,
    ::testing::ValuesIn(testing::with_fp16<Case>(
        {Case{"narrow", 11, 7, 32}, Case{"of_odd_sizes", 33, 5, 96}, Case{"of_one_state", 3, 1, 64},
         Case{"of_two_states", 1, 2, 32}, Case{"of_a_large_grid", 9, 6, 32, 17, 5},
         Case{"of_many_actions", 9, 6, 32, 3, 200}, Case{"the_guides", 512, 240, 64, 9, 5, true},
         Case{"wide", 32, 342, 768, 9, 5, true}, Case{"of_many_sequences", 2100, 18, 64, 13, 5, true}})),
    [](const auto& tried) { return tried.param.name; });

}  // namespace
}  // namespace adtrain
