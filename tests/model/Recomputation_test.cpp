// What the backward pass computes again, by plain operators. Blocks on our kernels: SublayerBlock_test.cpp
// and FusedBlock_test.cpp.

#include "kernels/Recomputation.h"

#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "collectives/Communicator.h"
#include "kernels/DropoutDraw.h"
#include "kernels/dropout/Dropout.h"
#include "model/RandomBatch.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

using kernels::PartRun;
using kernels::RandomNumbers;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).requires_grad_();
}

/// The gradients of inputs and of what the part holds, by the plain part or recomputed.
struct Gradients {
  at::Tensor y, of_x, of_weight;

  static Gradients of(at::Tensor x, at::Tensor weight,
                      const std::function<at::Tensor(const at::Tensor&)>& run, const at::Tensor& d_y) {
    x.mutable_grad() = weight.mutable_grad() = at::Tensor();
    const at::Tensor y = run(x);
    y.backward(d_y);
    return {y.detach(), x.grad(), weight.grad()};
  }
};

void expect_equal(const Gradients& found, const Gradients& expected) {
  EXPECT_TRUE(at::equal(found.y, expected.y));
  EXPECT_TRUE(at::equal(found.of_x, expected.of_x));
  EXPECT_TRUE(at::equal(found.of_weight, expected.of_weight));
}

TEST(Recomputed, KeepsItsInputAloneAndRunsOnceMore) {
  const at::Tensor x = leaf({5, 8}), weight = leaf({8, 8}), d_y = at::randn({5, 8});
  std::vector<PartRun> runs;
  c10::weak_intrusive_ptr<at::TensorImpl> inner(at::Tensor().getIntrusivePtr());
  const auto part = [&](const at::Tensor& input, PartRun run) {
    runs.push_back(run);
    const at::Tensor within = at::mm(input, weight).exp();
    inner = c10::weak_intrusive_ptr<at::TensorImpl>(within.getIntrusivePtr());
    return within.sin();
  };
  const Gradients expected = Gradients::of(
      x, weight, [&](const at::Tensor& input) { return part(input, PartRun::kForValues); }, d_y);
  runs.clear();
  const Gradients found = Gradients::of(
      x, weight,
      [&](const at::Tensor& input) {
        at::Tensor y = kernels::recomputed(input, {weight}, RandomNumbers::kSeeds, part);
        EXPECT_TRUE(inner.expired()) << "what the part has computed is kept";
        return y;
      },
      d_y);
  expect_equal(found, expected);
  EXPECT_EQ(runs, (std::vector{PartRun::kForValues, PartRun::kForGradients}));
  EXPECT_TRUE(inner.expired());

  runs.clear();
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(kernels::recomputed(x, {weight}, RandomNumbers::kSeeds, part), expected.y));
  EXPECT_EQ(runs, (std::vector{PartRun::kForValues}));
}

TEST(Recomputed, DrawsTheSameNumbersAndLeavesTheGeneratorWhereItWas) {
  const at::Tensor x = leaf({50, 8}), weight = leaf({8, 8}), d_y = at::randn({50, 8});
  const auto part = [&](const at::Tensor& input, PartRun) {
    return at::dropout(at::mm(at::dropout(input, 0.3, true), weight), 0.3, true).exp();
  };
  const auto run = [&](const std::function<at::Tensor(const at::Tensor&)>& chosen) {
    at::manual_seed(19);
    const Gradients gradients = Gradients::of(x, weight, chosen, d_y);
    return std::pair(gradients, at::rand({8}));
  };
  const auto [expected, later] =
      run([&](const at::Tensor& input) { return part(input, PartRun::kForValues); });
  const auto [found, later_too] = run([&](const at::Tensor& input) {
    return kernels::recomputed(input, {weight}, RandomNumbers::kGenerator, part);
  });
  expect_equal(found, expected);
  EXPECT_TRUE(at::equal(later, later_too));
  const auto [drawn_anew, unused] = run([&](const at::Tensor& input) {
    return kernels::recomputed(input, {weight}, RandomNumbers::kSeeds, part);
  });
  EXPECT_FALSE(at::equal(drawn_anew.of_weight, expected.of_weight)) << "nothing here depends on the masks";
}

/// Within a pass, where the part's draws follow earlier ones, and outside one.
TEST(Recomputed, DropsWhatItDroppedBefore) {
  const at::Tensor x = leaf({50, 8}), weight = leaf({8, 8}), d_y = at::randn({50, 8});
  const auto part = [&](const at::Tensor& input, PartRun) {
    return kernels::dropout(at::mm(kernels::dropout(input, 0.3), weight), 0.3).sin();
  };
  const auto again = [&](const at::Tensor& input) {
    return kernels::recomputed(input, {weight}, RandomNumbers::kSeeds, part);
  };
  const auto once = [&](const at::Tensor& input) { return part(input, PartRun::kForValues); };
  const auto twice = [&](const auto& run) {
    return [&run](const at::Tensor& input) { return run(run(input)); };
  };
  const at::Tensor seed = at::randint(1 << 30, {1}, at::kLong);
  SCOPED_TRACE(seed.item<int64_t>());
  const auto in_pass = [&](const std::function<at::Tensor(const at::Tensor&)>& run) {
    kernels::DropoutStream stream = {seed, at::arange(50, at::kLong)};
    const kernels::DropoutScope scope(stream);
    const Gradients gradients = Gradients::of(x, weight, run, d_y);
    EXPECT_EQ(stream.next, 4U) << "the backward pass draws from a stream of its own";
    return gradients;
  };
  const Gradients expected = in_pass(twice(once));
  expect_equal(in_pass(twice(again)), expected);
  EXPECT_EQ(kernels::DropoutScope::stream(), nullptr);

  at::manual_seed(29);
  const Gradients outside = Gradients::of(x, weight, again, d_y);
  const at::Tensor later = at::rand({3});
  at::manual_seed(29);
  kernels::DropoutStream stream = {at::randint(std::numeric_limits<int64_t>::max(), {1}, at::kLong),
                                   at::arange(50, at::kLong)};
  EXPECT_TRUE(at::equal(at::rand({3}), later)) << "one seed is drawn, and none in the backward pass";
  const kernels::DropoutScope scope(stream);
  expect_equal(outside, Gradients::of(x, weight, once, d_y));
}

/// How many nodes of the graph behind a loss are functions of this name.
int64_t nodes_named(const std::string& name, const at::Tensor& loss) {
  std::set<torch::autograd::Node*> seen;
  int64_t count = 0;
  const std::function<void(torch::autograd::Node*)> visit = [&](torch::autograd::Node* node) {
    if (node == nullptr || !seen.insert(node).second) return;
    if (node->name().find(name) != std::string::npos) ++count;
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  };
  visit(loss.grad_fn().get());
  return count;
}

struct Case {
  std::string variant;
  int64_t width;  ///< a multiple of eight per head takes the vectorised kernels
};

class NetworkWithRecomputation : public ::testing::TestWithParam<Case> {
 protected:
  static testing::Variant variant_of(Recompute recompute) {
    testing::Variant variant = testing::variant(GetParam().variant);
    variant.options.tf_n_embd = GetParam().width;
    variant.options.tf_dropout = 0.2;
    variant.options.tf_attn_dropout = 0.3;
    variant.options.recompute = recompute;
    return variant;
  }
  static Batch random_batch() {
    const ModelOptions options = variant_of(Recompute::kNone).options;
    if (!options.compressed()) return testing::random_plain(4, options.n_transit);
    return testing::random_compressed({0, 4, 4}, {4, 4, 4}, options.compress_interval);
  }
};

TEST_P(NetworkWithRecomputation, LossGradientsAndLaterDrawsAreTheSameBitForBit) {
  const uint64_t seed = at::randint(1 << 30, {1}, at::kLong).item<int64_t>();
  SCOPED_TRACE(seed);
  for (const LossPositions positions : {LossPositions::kLast, LossPositions::kAll}) {
    const Batch batch = random_batch();
    const auto run = [&](Recompute recompute, uint64_t of_dropout) {
      const testing::Variant variant = variant_of(recompute);
      const auto model = testing::small_model(variant);
      kernels::DropoutStream dropout = {at::full({1}, static_cast<int64_t>(of_dropout), at::kLong),
                                        at::arange(batch.size(), at::kLong)};
      const kernels::DropoutScope scope(dropout);
      const at::Tensor loss = model->loss(batch, positions, /*training=*/true).sum;
      EXPECT_EQ(nodes_named("Recomputed", loss),
                recompute == Recompute::kNone ? 0 : variant.options.tf_n_layer);
      const at::Tensor gradient = testing::flat_gradient(*model, loss);
      return std::vector{loss.detach(), gradient, at::tensor(static_cast<int64_t>(dropout.next), at::kLong)};
    };
    const std::vector<at::Tensor> expected = run(Recompute::kNone, seed);
    for (const Recompute recompute : {Recompute::kMlp, Recompute::kBlock}) {
      const std::vector<at::Tensor> found = run(recompute, seed);
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_TRUE(at::equal(found[k], expected[k]))
            << k << ", off by " << testing::relative_error(found[k], expected[k]) << " with recompute "
            << static_cast<int>(recompute) << ", positions " << static_cast<int>(positions);
    }
    EXPECT_FALSE(at::equal(run(Recompute::kBlock, seed + 1)[1], expected[1])) << "dropout does nothing";
  }
}

/// One rank of two, of which the other is not there: counts what is sent.
class CountingCommunicator final : public Communicator {
 public:
  CountingCommunicator() : Communicator(0, 2, 1) {}
  std::string backend() const override { return "none"; }
  void synchronize() override {}
  int64_t sums = 0;

 protected:
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor&, int64_t) override { return nothing(); }
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor&, ReduceOp) override {
    ++sums;
    return nothing();
  }
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor&, at::Tensor&) override {
    return nothing();
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { return nothing(); }

 private:
  static std::unique_ptr<CollectiveWork> nothing() { return std::make_unique<NoCollectiveWork>(); }
};

TEST_P(NetworkWithRecomputation, BucketsAreSentDuringTheBackwardPassOfTheLastMicroBatch) {
  const Batch batches[] = {random_batch(), random_batch()};
  int64_t sent = 0;
  const auto gradient_of = [&](Recompute recompute) {
    const auto model = testing::small_model(variant_of(recompute));
    CountingCommunicator communicator;
    GradientReducer reducer(model->parameters().leaves(), communicator,
                            {.bucket_bytes = 2000, .first_bucket_bytes = 500});
    model->send_gradients_to(&reducer);
    for (const Batch& batch : batches) {
      kernels::DropoutStream dropout = {at::ones({1}, at::kLong), at::arange(batch.size(), at::kLong)};
      const kernels::DropoutScope scope(dropout);
      reducer.begin_micro_step(/*communicates=*/&batch == &batches[1]);
      model->loss(batch, LossPositions::kLast, /*training=*/true).sum.backward();
    }
    sent = communicator.sums;
    reducer.finish();
    return reducer.flat_gradient().clone();
  };
  const at::Tensor expected = gradient_of(Recompute::kNone);
  const int64_t sent_without = sent;
  EXPECT_GT(sent_without, 5);
  for (const Recompute recompute : {Recompute::kMlp, Recompute::kBlock}) {
    EXPECT_TRUE(at::equal(gradient_of(recompute), expected));
    EXPECT_EQ(sent, sent_without);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  std::vector<std::string> variants = testing::composed_names();
  variants.insert(variants.end(), {"pre_norm", "post_norm", "gpt2", "compressed"});
  for (const std::string& variant : variants) {
    for (const int64_t width : {16, 12}) all.push_back({variant, width});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Networks, NetworkWithRecomputation, ::testing::ValuesIn(cases()),
                         [](const auto& tested) {
                           return tested.param.variant + "_" + std::to_string(tested.param.width);
                         });

}  // namespace
}  // namespace adtrain
