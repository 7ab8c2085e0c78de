#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Random.h"
#include "collectives/ranks/Ranks.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

constexpr int64_t kWidth = 24;
constexpr int64_t kLayers = 5;

at::Tensor random_tensor(at::IntArrayRef shape, uint64_t seed) {
  at::Tensor tensor = at::empty(shape);
  RandomStream random(seed);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.data_ptr<float>()[i] = static_cast<float>(random.normal()) / 4;
  return tensor.to(ranks().device);
}

/// Layers of weight and bias; then a parameter that only rank 0 uses and one that nobody uses.
std::vector<at::Tensor> make_parameters() {
  std::vector<at::Tensor> parameters;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    parameters.push_back(random_tensor({kWidth, kWidth}, seed_of(1, layer)));
    parameters.push_back(random_tensor({kWidth}, seed_of(2, layer)));
  }
  parameters.push_back(random_tensor({kWidth}, seed_of(3)));
  parameters.push_back(random_tensor({7}, seed_of(4)));
  for (at::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

/// Odd ranks use the layers in the opposite order, so gradients become ready in another order there.
at::Tensor loss_of(const std::vector<at::Tensor>& parameters, int64_t rank, int64_t micro_step) {
  at::Tensor x = random_tensor({6, kWidth}, seed_of(5, rank, micro_step));
  for (int64_t i = 0; i < kLayers; ++i) {
    const auto layer = static_cast<size_t>(rank % 2 == 0 ? i : kLayers - 1 - i);
    x = at::tanh(at::matmul(x, parameters[2 * layer]) + parameters[2 * layer + 1]);
  }
  if (rank == 0) x = x * parameters[2 * kLayers];
  return x.square().sum();
}

/// This rank's gradients by autograd alone, as one tensor that lies like the reducer's.
at::Tensor plain_gradient(int64_t rank, int64_t micro_steps) {
  const std::vector<at::Tensor> parameters = make_parameters();
  for (int64_t micro_step = 0; micro_step < micro_steps; ++micro_step)
    loss_of(parameters, rank, micro_step).backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    const int64_t gap = (64 - parameter.numel() % 64) % 64;
    const at::Tensor gradient = parameter.grad().defined() ? parameter.grad().view(-1)
                                                           : at::zeros({parameter.numel()}, ranks().device);
    gradients.push_back(at::constant_pad_nd(gradient, {0, gap}));
  }
  return at::cat(gradients);
}

struct Sizes {
  const char* name;
  ReducerOptions options;
};

class GradientSums : public testing::TestWithParam<Sizes> {};

TEST_P(GradientSums, EqualThoseOfPlainAutogradOverAllRanks) {
  Communicator& communicator = *ranks().communicator;
  const std::vector<at::Tensor> parameters = make_parameters();
  GradientReducer reducer(parameters, communicator, GetParam().options);
  for (const int64_t micro_steps : {1, 3, 2}) {
    const at::Tensor expected =
        communicator.all_gather(plain_gradient(communicator.rank(), micro_steps)).to(at::kDouble).sum(0);
    reducer.zero();
    for (int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
      reducer.begin_micro_step(micro_step == micro_steps - 1);
      loss_of(parameters, communicator.rank(), micro_step).backward();
    }
    reducer.finish();

    const at::Tensor& sum = reducer.flat_gradient();
    const double largest = expected.abs().max().item<double>();
    EXPECT_GT(largest, 0.1);
    // Ranks' shares may cancel, so what rounding leaves is small against the shares, not against each sum.
    const double tolerance = GetParam().options.wire == WireType::kBFloat16 && sum.is_cuda() ? 2e-2 : 1e-4;
    EXPECT_TRUE(at::allclose(sum.to(at::kDouble), expected, tolerance, tolerance * largest))
        << micro_steps << " micro-steps";
    const at::Tensor all = communicator.all_gather(sum);
    for (int64_t r = 0; r < communicator.world_size(); ++r)
      EXPECT_TRUE(at::equal(all[r], sum)) << "rank " << r;
  }
}

/// The same sums by reduce-scatter: each rank has those of its shard, and the shards are all of it.
TEST_P(GradientSums, AreThoseOfShardsToo) {
  Communicator& communicator = *ranks().communicator;
  const std::vector<at::Tensor> parameters = make_parameters();
  ReducerOptions options = GetParam().options;
  options.shards = true;
  GradientReducer reducer(parameters, communicator, options);
  FlatShards* const shards = reducer.shards();
  ASSERT_EQ(shards != nullptr, communicator.world_size() > 1);
  if (shards == nullptr) return;
  for (const int64_t micro_steps : {1, 2}) {
    const at::Tensor expected =
        communicator.all_gather(plain_gradient(communicator.rank(), micro_steps)).to(at::kDouble).sum(0);
    reducer.zero();
    for (int64_t micro_step = 0; micro_step < micro_steps; ++micro_step) {
      reducer.begin_micro_step(micro_step == micro_steps - 1);
      loss_of(parameters, communicator.rank(), micro_step).backward();
    }
    reducer.finish();
    at::Tensor sum = at::full_like(reducer.flat_gradient(), 77),
               shard = at::empty({shards->size()}, sum.options());
    for (const auto& [bucket, own, in_shard] : shards->places()) {
      const at::Tensor part = reducer.flat_gradient().narrow(0, own.begin, own.size);
      sum.narrow(0, own.begin, own.size).copy_(part);
      shard.narrow(0, in_shard, own.size).copy_(part);
    }
    shards->all_gather(sum);
    const double largest = expected.abs().max().item<double>();
    const double tolerance = options.wire == WireType::kBFloat16 && sum.is_cuda() ? 2e-2 : 1e-4;
    EXPECT_TRUE(at::allclose(sum.to(at::kDouble), expected, tolerance, tolerance * largest))
        << micro_steps << " micro-steps";

    // To rank 0 and back.
    const at::Tensor whole = shards->gather_on_root(shard, sum.numel());
    ASSERT_EQ(whole.defined(), communicator.is_root());
    if (whole.defined()) {
      EXPECT_TRUE(at::equal(whole, sum.cpu()));
    }
    at::Tensor dealt = at::zeros_like(shard);
    shards->scatter_from_root(whole, dealt);
    EXPECT_TRUE(at::equal(dealt, shard));
    at::Tensor sizes = at::full({1}, shards->size(), at::kLong);
    shards->sum(sizes);
    EXPECT_EQ(sizes.item<int64_t>(), sum.numel());
  }
}

TEST_P(GradientSums, TakeInWhatKernelsAddUpThemselves) {
  Communicator& communicator = *ranks().communicator;
  const std::vector<at::Tensor> parameters = make_parameters();
  const std::vector<at::Tensor> layer = {parameters[2], parameters[3]};
  GradientReducer reducer(parameters, communicator, GetParam().options);
  reducer.begin_micro_step(true);
  reducer.place_of(layer).fill_(static_cast<double>(communicator.rank() + 1));
  reducer.added(layer);
  reducer.finish();
  const auto world_size = static_cast<double>(communicator.world_size());
  const at::Tensor place = reducer.place_of(layer);
  EXPECT_TRUE(at::equal(place, at::full_like(place, world_size * (world_size + 1) / 2)));
  EXPECT_EQ(reducer.flat_gradient().sum().item<float>(), place.sum().item<float>()) << "nothing else got any";
}

INSTANTIATE_TEST_SUITE_P(
    Buckets, GradientSums,
    testing::Values(Sizes{"OneForAll", {.bucket_bytes = 25 << 20, .first_bucket_bytes = 1 << 20}},
                    Sizes{"Several", {.bucket_bytes = 5000, .first_bucket_bytes = 100}},
                    Sizes{"OneEach", {.bucket_bytes = 1, .first_bucket_bytes = 1}},
                    Sizes{"RoundedToBf16",
                          {.bucket_bytes = 5000, .first_bucket_bytes = 100, .wire = WireType::kBFloat16}}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace adtrain
