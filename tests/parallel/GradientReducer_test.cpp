#include "parallel/GradientReducer.h"

#include <stdexcept>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// One process: what is sent when. tests/collectives/ranks compares sums over real ranks.

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Writes down which sums were started, by their number of elements, and leaves the tensors as they are.
class RecordingCommunicator final : public Communicator {
 public:
  explicit RecordingCommunicator(int64_t world_size) : Communicator(0, world_size, 1) {}
  std::string backend() const override { return "recorder"; }

  std::vector<int64_t> started;
  std::vector<int64_t> scattered;  ///< of these, those that are summed in parts
  std::vector<std::thread::id> threads;

 protected:
  std::unique_ptr<CollectiveWork> begin_reduce_scatter(at::Tensor& tensor) override {
    scattered.push_back(tensor.numel());
    return begin_all_reduce(tensor, ReduceOp::kSum);
  }
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor& tensor, ReduceOp) override {
    started.push_back(tensor.numel());
    threads.push_back(std::this_thread::get_id());
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor&, int64_t) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor&, at::Tensor&) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { throw std::logic_error("not expected"); }
};

/// Sums as NCCL does, reading each summand where it lies, over two ranks that have the same gradients.
class SummingCommunicator final : public Communicator {
 public:
  SummingCommunicator() : Communicator(0, 2, 1) {}
  std::string backend() const override { return "two alike"; }
  bool sums_without_copies() const override { return true; }

  /// Of each summand: its elements, and whether it was read elsewhere than where its sum goes.
  std::vector<std::pair<int64_t, bool>> summands;

 protected:
  std::unique_ptr<CollectiveWork> begin_sums(std::vector<Summand> all) override {
    for (const Summand& each : all) {
      summands.emplace_back(each.to.numel(), !each.from.is_alias_of(each.to));
      each.to.copy_((2 * each.factor * each.from).view(each.to.sizes()));
    }
    return std::make_unique<NoCollectiveWork>();
  }
  std::unique_ptr<CollectiveWork> begin_all_reduce(at::Tensor&, ReduceOp) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_broadcast(at::Tensor&, int64_t) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_all_gather(const at::Tensor&, at::Tensor&) override {
    throw std::logic_error("not expected");
  }
  std::unique_ptr<CollectiveWork> begin_barrier() override { throw std::logic_error("not expected"); }
};

constexpr ReducerOptions kOneEach{.bucket_bytes = 1, .first_bucket_bytes = 1};

/// Three parameters that take 64, 128 and 192 elements of the buffer.
struct Parameters {
  std::vector<at::Tensor> all = {at::ones({1}).requires_grad_(), at::ones({65}).requires_grad_(),
                                 at::ones({192}).requires_grad_()};
  /// Uses them in the given order, each one's result through the next, so that gradients come in the opposite
  /// order.
  at::Tensor chain(const std::vector<size_t>& order) const {
    at::Tensor value = at::full({}, 2.0);
    for (const size_t index : order) value = (value * all[index]).sum();
    return value;
  }
};

TEST(GradientReducer, GradientsAreViewsOfOneBuffer) {
  const Parameters parameters;
  RecordingCommunicator communicator(1);
  GradientReducer reducer(parameters.all, communicator, {});
  parameters.chain({0, 1, 2}).backward();
  const at::Tensor& flat = reducer.flat_gradient();
  ASSERT_EQ(flat.sizes(), at::IntArrayRef({64 + 128 + 192}));
  at::Tensor expected = at::zeros_like(flat);
  expected.narrow(0, 0, 1).fill_(2 * 65 * 192);
  expected.narrow(0, 64, 65).fill_(2 * 192);
  expected.narrow(0, 192, 192).fill_(2 * 65);
  EXPECT_TRUE(at::equal(flat, expected)) << flat;
  parameters.chain({0, 1, 2}).backward();
  EXPECT_TRUE(at::equal(flat, 2 * expected)) << "a second micro-step is added";
  reducer.zero();
  for (const at::Tensor& parameter : parameters.all) EXPECT_EQ(parameter.grad().abs().sum().item<float>(), 0);
}

TEST(GradientReducer, BucketsAreFilledFromTheEnd) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, {.bucket_bytes = 600, .first_bucket_bytes = 500});
  EXPECT_EQ(reducer.bucket_count(), 2);
  reducer.begin_micro_step(true);
  reducer.finish();
  EXPECT_THAT(communicator.started, ElementsAre(192, 192));
}

TEST(GradientReducer, SumsStartWhileTheBackwardPassGoesOn) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  reducer.begin_micro_step(true);
  std::vector<int64_t> started_before_the_first;  // when the gradient of the parameter used first is computed
  parameters.all[0].register_hook(
      [&](const at::TensorBase&) { started_before_the_first = communicator.started; });
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THAT(started_before_the_first, ElementsAre(192, 128));
  EXPECT_THAT(communicator.started, ElementsAre(192, 128, 64));
  EXPECT_THAT(communicator.threads, testing::Each(std::this_thread::get_id()));
  reducer.finish();
  EXPECT_EQ(communicator.started.size(), 3U);
}

TEST(GradientReducer, SumsStartInOneOrderWhateverOrderGradientsComeIn) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  for (const std::vector<size_t>& order : std::vector<std::vector<size_t>>{{2, 1, 0}, {1, 2, 0}, {0, 2, 1}}) {
    communicator.started.clear();
    reducer.begin_micro_step(true);
    parameters.chain(order).backward();
    reducer.finish();
    EXPECT_THAT(communicator.started, ElementsAre(192, 128, 64));
  }
}

TEST(GradientReducer, OnlyTheMicroStepThatSaysSoCommunicates) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  reducer.begin_micro_step(false);
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THAT(communicator.started, IsEmpty());
  reducer.begin_micro_step(true);
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THAT(communicator.started, ElementsAre(192, 128, 64));
  reducer.finish();
}

TEST(GradientReducer, UnusedParametersAreSentInTheEnd) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  reducer.begin_micro_step(true);
  parameters.chain({0, 2}).backward();
  EXPECT_THAT(communicator.started, ElementsAre(192)) << "bucket 2 has to wait for bucket 1";
  reducer.finish();
  EXPECT_THAT(communicator.started, ElementsAre(192, 128, 64));
}

TEST(GradientReducer, TakesTheGradientsOfNeighboursTogether) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  const std::vector<at::Tensor> neighbours = {parameters.all[1], parameters.all[2]};
  for (const bool communicates : {false, true}) {
    reducer.begin_micro_step(communicates);
    at::Tensor place = reducer.place_of(neighbours);
    ASSERT_EQ(place.sizes(), at::IntArrayRef({128 + 192}));
    place.add_(3);
    EXPECT_THAT(communicator.started, IsEmpty());
    reducer.added(neighbours);
    if (communicates) {
      EXPECT_THAT(communicator.started, ElementsAre(192, 128));
    }
    parameters.chain({0}).backward();
  }
  EXPECT_THAT(communicator.started, ElementsAre(192, 128, 64));
  reducer.finish();
  EXPECT_TRUE(at::equal(parameters.all[1].grad(), at::full({65}, 6.0)));
  EXPECT_TRUE(at::equal(parameters.all[2].grad(), at::full({192}, 6.0)));
  EXPECT_EQ(parameters.all[0].grad().item<float>(), 4);

  EXPECT_THROW(reducer.place_of({parameters.all[0], parameters.all[2]}), std::logic_error);
  EXPECT_THROW(reducer.place_of({at::ones({1})}), std::logic_error);
}

TEST(GradientReducer, LeavesGradientsToItsCaller) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach, GradientSource::kCaller);
  reducer.begin_micro_step(true);
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THAT(communicator.started, IsEmpty());
  EXPECT_EQ(reducer.flat_gradient().abs().sum().item<float>(), 0);
  EXPECT_EQ(parameters.all[0].grad().item<float>(), 2 * 65 * 192) << "it is autograd's own";
  reducer.place_of(parameters.all[2]).fill_(5);
  reducer.arrived(1);
  reducer.arrived(2);
  EXPECT_THAT(communicator.started, ElementsAre(192, 128));
  reducer.finish();
}

TEST(GradientReducer, SumsMultiplyGradientsThatLieElsewhere) {
  constexpr int64_t kLarge = 64 * 4700;
  const std::vector<at::Tensor> parameters = {
      at::zeros({3, 5}).requires_grad_(), at::zeros({kLarge}).requires_grad_(),
      at::zeros({65}).requires_grad_(), at::zeros({kLarge}).requires_grad_()};
  SummingCommunicator communicator;
  GradientReducer reducer(parameters, communicator, {}, GradientSource::kCaller);
  ASSERT_TRUE(reducer.multiply_sums_by(0.25));
  reducer.begin_micro_step(true);
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(at::randn(parameter.sizes()));
  reducer.arrived_at(3, gradients[3]);
  reducer.arrived_at(2, gradients[2]);
  reducer.place_of(parameters[1]).narrow(0, 0, kLarge).copy_(gradients[1]);  // added up over micro-steps, say
  reducer.arrived(1);
  reducer.arrived_at(0, gradients[0]);
  reducer.finish();
  for (size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor place = reducer.place_of(parameters[index]).narrow(0, 0, parameters[index].numel());
    EXPECT_TRUE(at::equal(place, 0.5 * gradients[index].flatten())) << "parameter " << index;
  }
  // The first bucket is the last parameter alone; of the others only the large one is a summand of its own.
  using testing::Pair;
  EXPECT_THAT(communicator.summands,
              ElementsAre(Pair(kLarge, true), Pair(64, false), Pair(kLarge, false), Pair(128, false)));
}

TEST(GradientReducer, SumsThatCopyDoNotMultiply) {
  const Parameters parameters;
  RecordingCommunicator two(2);
  EXPECT_FALSE(GradientReducer(parameters.all, two, {}, GradientSource::kCaller).multiply_sums_by(0.5));
  SummingCommunicator summing;
  EXPECT_TRUE(GradientReducer(parameters.all, summing, {}, GradientSource::kCaller).multiply_sums_by(0.5));
}

TEST(GradientReducer, ScattersTheSumsOfEachBucketWhereOptionsShard) {
  const Parameters parameters;
  RecordingCommunicator communicator(3);
  GradientReducer reducer(parameters.all, communicator,
                          {.bucket_bytes = 1, .first_bucket_bytes = 1, .shards = true});
  reducer.begin_micro_step(true);
  parameters.chain({0, 1, 2}).backward();
  reducer.finish();
  EXPECT_THAT(communicator.scattered, ElementsAre(192, 128, 64));
  EXPECT_EQ(communicator.started, communicator.scattered);
  ASSERT_NE(reducer.shards(), nullptr);
  EXPECT_EQ(reducer.shards()->size(), 64) << "of rank 0: of the bucket of 192 a third, of others nothing";
  EXPECT_EQ(reducer.shards()->places()[0].own.begin, 64 + 128);

  RecordingCommunicator one(1);
  GradientReducer alone(parameters.all, one, {.shards = true});
  EXPECT_EQ(alone.shards(), nullptr) << "nothing to shard";
}

/// Kernels of NCCL that read gradients where they lie have no counterpart in parts.
TEST(GradientReducer, SumsOfShardsDoNotMultiply) {
  const Parameters parameters;
  SummingCommunicator summing;
  GradientReducer reducer(parameters.all, summing, {.shards = true}, GradientSource::kCaller);
  EXPECT_FALSE(reducer.multiply_sums_by(0.5));
}

TEST(GradientReducer, ASingleRankSendsNothing) {
  const Parameters parameters;
  RecordingCommunicator communicator(1);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  reducer.begin_micro_step(true);
  parameters.chain({0, 1, 2}).backward();
  reducer.finish();
  EXPECT_THAT(communicator.started, IsEmpty());
  EXPECT_EQ(reducer.exposed_seconds(), 0);
}

TEST(GradientReducer, ASecondBackwardPassIntoASentBucketIsRefused) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  GradientReducer reducer(parameters.all, communicator, kOneEach);
  reducer.begin_micro_step(true);
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THROW(parameters.chain({0, 1, 2}).backward(), std::logic_error);
}

TEST(GradientReducer, HooksGoWithTheReducer) {
  const Parameters parameters;
  RecordingCommunicator communicator(2);
  {
    GradientReducer reducer(parameters.all, communicator, kOneEach);
    reducer.begin_micro_step(true);
  }
  parameters.chain({0, 1, 2}).backward();
  EXPECT_THAT(communicator.started, IsEmpty());
}

TEST(GradientReducer, GradientsOf16BitParametersAreAddedUpInFloat32) {
  const at::Tensor parameter = at::ones({1}, at::kBFloat16).requires_grad_();
  RecordingCommunicator communicator(2);
  GradientReducer reducer({parameter}, communicator, kOneEach);
  constexpr float kSmall = 1.0F / 512;  // 1 + kSmall has no place in 8 bits of mantissa
  for (const int micro_step : {0, 1, 2}) {
    reducer.begin_micro_step(/*communicates=*/micro_step == 2);
    (parameter * (micro_step == 0 ? 1.0F : kSmall)).sum().backward();
  }
  reducer.finish();
  EXPECT_EQ(reducer.flat_gradient().scalar_type(), at::kFloat);
  EXPECT_EQ(reducer.flat_gradient()[0].item<float>(), 1 + 2 * kSmall);
  EXPECT_FALSE(parameter.grad().defined()) << "the 16-bit gradient is freed";
}

TEST(GradientReducer, KnowsWhich16BitGradientsAreStillZero) {
  const std::vector<at::Tensor> parameters = {at::ones({2}, at::kBFloat16).requires_grad_(),
                                              at::ones({3}, at::kBFloat16).requires_grad_(),
                                              at::ones({4}).requires_grad_()};
  const at::TensorList first(&parameters[0], 1), both(parameters.data(), 2), of_fp32(&parameters[2], 1);
  RecordingCommunicator communicator(1);
  GradientReducer reducer(parameters, communicator, {});
  reducer.begin_micro_step(false);
  EXPECT_TRUE(reducer.are_zero(both));
  EXPECT_FALSE(reducer.are_zero(of_fp32)) << "autograd adds to them without telling";
  reducer.added(first);
  EXPECT_FALSE(reducer.are_zero(first));
  EXPECT_FALSE(reducer.are_zero(both));
  EXPECT_TRUE(reducer.are_zero(parameters[1])) << "of the other one nothing has come";
  parameters[1].sum().backward();
  EXPECT_FALSE(reducer.are_zero(parameters[1])) << "its gradient came by autograd";
  reducer.begin_micro_step(true);
  EXPECT_FALSE(reducer.are_zero(first)) << "in the same step";
  reducer.finish();
  EXPECT_TRUE(reducer.are_zero(both)) << "the optimizer clears them";
  reducer.added(both);
  reducer.abandon();
  EXPECT_TRUE(reducer.are_zero(both));
  reducer.added(both);
  reducer.zero();
  EXPECT_TRUE(reducer.are_zero(both));

  GradientReducer of_caller({at::ones({2}, at::kBFloat16).requires_grad_()}, communicator, {},
                            GradientSource::kCaller);
  EXPECT_FALSE(of_caller.are_zero(first)) << "the caller adds to them without telling";
}

TEST(GradientReducer, OtherTensorsAreRefused) {
  RecordingCommunicator communicator(2);
  const auto make = [&](const at::Tensor& parameter) {
    GradientReducer reducer({parameter}, communicator, {});
  };
  EXPECT_THROW(make(at::ones({2}, at::kDouble).requires_grad_()), std::invalid_argument);
  EXPECT_THROW(make(at::ones({2})), std::invalid_argument);
  EXPECT_THROW(make(at::ones({2}).requires_grad_() * 2), std::invalid_argument);
}

}  // namespace
}  // namespace adtrain
