#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/GradientSink.h"
#include "kernels/WithHalf.h"
#include "kernels/embedding/FusedEmbedding.h"
#include "model/RandomBatch.h"
#include "model/TransitionTokens.h"

namespace adtrain {
namespace {

struct Case {
  std::string name;
  int64_t sequences, transitions, width;
  LossPositions positions = LossPositions::kLast;
  ModelShape shape = {};
  bool learns_positions = true;  ///< and token types
  at::ScalarType type = at::kBFloat16;
};

/// The plain operators in float64 are the definition of what is right.
class TokenEmbedding : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
    const auto& [name, sequences, transitions, width, positions, shape, learns_positions, type] = GetParam();
    batch_ = testing::random_plain(sequences, transitions, shape).to(at::Device(at::kCUDA, 0));
    batch_.rewards = at::randn_like(batch_.rewards).to(type).to(at::kFloat);
    // What the context leaves out is not read: nothing of it may come through.
    if (positions == LossPositions::kLast) batch_.rewards.select(1, transitions - 1).fill_(NAN);
    parameters_ = {random_leaf({width, shape.transition_features()}), random_leaf({width})};
    if (learns_positions) parameters_.push_back(random_leaf({3, width}));
    parameters_.push_back(random_leaf({shape.states(), width}));
    if (learns_positions) parameters_.push_back(random_leaf({1, transitions + 3, width}));
  }

  static at::Tensor random_leaf(at::IntArrayRef sizes) {
    return at::randn(sizes, at::device(at::kCUDA)).to(GetParam().type).set_requires_grad(true);
  }
  /// Relative to the norm: how far the type may round.
  static double tolerance() { return GetParam().type == at::kHalf ? 5e-4 : 4e-3; }

  at::Tensor found(MainGradients* main_gradients = nullptr) const {
    const kernels::TokenShape shape =
        token_shape(batch_, GetParam().shape, GetParam().positions, GetParam().width);
    return kernels::fused_embedding({batch_.states, batch_.actions, batch_.rewards, batch_.next_states},
                                    shape, named(parameters_), main_gradients);
  }
  at::Tensor expected(const std::vector<at::Tensor>& parameters) const {
    const int64_t length = GetParam().transitions;
    const bool all = GetParam().positions == LossPositions::kAll;
    const int64_t context = all ? length : length - 1, queries = all ? length : 1;
    const at::Tensor features =
        transition_features(batch_, GetParam().shape, at::kDouble).narrow(1, 0, context);
    const kernels::EmbeddingParameters named_parameters = named(parameters);
    at::Tensor transitions =
        at::linear(features, named_parameters.context_weight, named_parameters.context_bias);
    at::Tensor states =
        at::embedding(named_parameters.query_states,
                      state_index(batch_.states, GetParam().shape).narrow(1, length - queries, queries));
    if (GetParam().learns_positions) {
      const at::Tensor positions_of_all = named_parameters.positions.squeeze(0);
      transitions =
          transitions + named_parameters.types[kTransition] + positions_of_all.narrow(0, 0, context);
      states = states + positions_of_all.narrow(0, length - queries, queries);
    }
    return at::cat({transitions, states}, 1);
  }
  static kernels::EmbeddingParameters named(const std::vector<at::Tensor>& parameters) {
    if (!GetParam().learns_positions) {
      return {.context_weight = parameters[0], .context_bias = parameters[1], .query_states = parameters[2]};
    }
    return {parameters[0], parameters[1], parameters[2], parameters[3], parameters[4]};
  }

  Batch batch_;
  std::vector<at::Tensor> parameters_;
};

TEST_P(TokenEmbedding, IsThatOfThePlainOperators) {
  testing::expect_embedding_is_the_reference([&](MainGradients* to) { return found(to); },
                                             [&](const auto& exact) { return expected(exact); }, parameters_,
                                             tolerance());
}

TEST_P(TokenEmbedding, TakesRowsOfAnyStrides) {
  const at::Tensor x = found();
  batch_.states = batch_.states.transpose(0, 1).contiguous().transpose(0, 1);
  batch_.rewards = batch_.rewards.t().contiguous().t();
  EXPECT_TRUE(at::equal(x, found()));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, TokenEmbedding,
    ::testing::ValuesIn(testing::with_fp16<Case>(
        {Case{"the_guides", 512, 240, 64}, Case{"narrow", 70, 80, 32}, Case{"of_odd_sizes", 33, 37, 96},
         Case{"wide", 3, 100, 768}, Case{"of_a_query_alone", 5, 1, 64}, Case{"of_one_transition", 1, 2, 32},
         Case{"of_many_sequences", 2100, 18, 64}, Case{"of_more_actions", 9, 33, 64, {}, {17, 8}},
         Case{"of_all_positions", 40, 37, 64, LossPositions::kAll},
         Case{"of_all_positions_narrow", 33, 16, 32, LossPositions::kAll},
         Case{"of_many_sequences_and_queries", 300, 240, 64, LossPositions::kAll},
         Case{"of_few_slices", 90, 100, 1024, LossPositions::kAll},
         Case{"of_a_large_grid", 70, 40, 64, LossPositions::kAll, {150, 5}},
         Case{"of_a_large_grid_narrow", 9, 40, 32, LossPositions::kAll, {210, 5}},
         Case{"without_positions", 70, 80, 32, LossPositions::kAll, {}, false},
         Case{"without_positions_last", 9, 33, 64, LossPositions::kLast, {}, false}})),
    [](const auto& tried) { return tried.param.name; });

}  // namespace
}  // namespace adtrain
