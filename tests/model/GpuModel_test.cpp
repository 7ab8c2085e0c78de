#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "model/AnySpaceBatch.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::Variant;

struct Case {
  std::string variant;
  LossPositions positions;
  at::ScalarType type;
  double tolerance;       ///< of the gradient, relative to its largest element
  int64_t window = 0;     ///< n_transit; 0 for the variant's own
  int64_t head_size = 0;  ///< 0 for the variant's own

  Variant of_variant() const {
    Variant changed = testing::variant(variant);
    if (window > 0) changed.options.n_transit = window;
    if (head_size > 0) changed.options.tf_n_embd = head_size * changed.options.tf_n_head;
    return changed;
  }
};

/// The model on the CPU in fp32 is the definition of what is right.
class GpuModel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  }
};

Batch batch_for(const Variant& variant, LossPositions positions) {
  const int64_t region = variant.options.compress_interval;
  if (!variant.options.compressed()) return testing::random_plain(6, variant.options.n_transit);
  if (positions == LossPositions::kAll) return testing::random_compressed({0, 4, 4}, {4, 4, 4}, region);
  return testing::random_compressed({0, 4, 4, 0, 4}, {0, 0, 4, 4, 3}, region);
}

TEST_P(GpuModel, LossAndGradientAreThoseOfTheCpu) {
  const Variant variant = GetParam().of_variant();
  const auto on_cpu = testing::small_model(variant), on_gpu = testing::small_model(variant);
  const at::Device gpu(at::kCUDA, 0);
  on_gpu->parameters().to(gpu, GetParam().type);
  const kernels::KernelPlan plan = on_gpu->plan(GetParam().positions);
  if (GetParam().window > 0) {
    EXPECT_EQ(plan.own_attention(), GetParam().head_size > 0);
    EXPECT_EQ(plan.cudnn_attention(), GetParam().head_size == 0);
  }
  // Biases that go with the MLP: see KernelPlan.
  const std::string& name = GetParam().variant;
  if (GetParam().window > 0) {
    EXPECT_EQ(plan.by_sublayers(),
              name != "pre_norm_pieces" && name != "vintix_rotary" && name != "xland_transition");
  }
  for (int draw = 0; draw < 3; ++draw) {
    const Batch batch = batch_for(variant, GetParam().positions);
    const auto expected = on_cpu->loss(batch, GetParam().positions, false);
    const auto found = on_gpu->loss(batch.to(gpu), GetParam().positions, false);
    EXPECT_EQ(found.targets, expected.targets);
    EXPECT_LT(testing::relative_error(found.sum.cpu(), expected.sum), GetParam().tolerance);
    const at::Tensor gradient = testing::flat_gradient(*on_cpu, expected.sum);
    EXPECT_LT(
        testing::relative_error(testing::flat_gradient(*on_gpu, found.sum).cpu().to(at::kFloat), gradient),
        GetParam().tolerance);
  }
}

/// What a network keeps from its forward pass on.
TEST(GpuRecomputation, KeepsLess) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const at::Device gpu(at::kCUDA, 0);
  Variant variant = testing::variant("xland");
  variant.options.tf_n_embd = 256;
  variant.options.tf_n_layer = 8;
  variant.options.n_transit = 256;
  const Batch batch = testing::random_plain(16, variant.options.n_transit).to(gpu);
  const auto kept = [&](Recompute recompute) {
    variant.options.recompute = recompute;
    const auto model = testing::small_model(variant);
    model->parameters().to(gpu, at::kBFloat16);
    const auto allocated = [&] {
      return c10::cuda::CUDACachingAllocator::getDeviceStats(gpu.index()).allocated_bytes[0].current;
    };
    testing::flat_gradient(*model,
                           model->loss(batch, LossPositions::kAll, true).sum);  // allocates workspaces
    const int64_t before = allocated();
    const at::Tensor loss = model->loss(batch, LossPositions::kAll, true).sum;
    return static_cast<double>(allocated() - before);
  };
  const double none = kept(Recompute::kNone), mlp = kept(Recompute::kMlp), block = kept(Recompute::kBlock);
  // Of 24 bytes a feature twelve are the MLP's, four values of GELU in 16 bits and derivatives in 8; two are
  // the input.
  EXPECT_NEAR(mlp / none, 12.0 / 24, 0.08);
  EXPECT_NEAR(block / none, 2.0 / 24, 0.06);
}

/// As wide as networks whose linear layers have several products to choose from.
TEST(GpuRoundedWeights, PredictAsAnImageOfThemDoes) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const at::Device gpu(at::kCUDA, 0);
  for (const char* const name : {"pre_norm", "post_norm", "gpt2", "vintix", "xland"}) {
    Variant changed = testing::variant(name);
    changed.options.tf_n_embd = 512;
    changed.options.tf_n_head = 8;
    changed.options.n_transit = 128;
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(std::string(name) + " in " + c10::toString(type));
      const auto image = testing::small_model(changed), rounded = testing::small_model(changed);
      image->parameters().to(gpu, type);
      rounded->parameters().round(gpu, type);
      for (const int64_t rows : {2, 33}) {
        const Batch batch = testing::random_plain(rows, changed.options.n_transit).to(gpu);
        EXPECT_TRUE(at::equal(rounded->predict(batch).actions, image->predict(batch).actions)) << rows;
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  std::vector<std::string> variants = testing::composed_names();
  variants.insert(variants.end(), {"pre_norm", "post_norm", "gpt2", "compressed"});
  for (const std::string& variant : variants) {
    for (const LossPositions positions : {LossPositions::kLast, LossPositions::kAll}) {
      all.push_back({variant, positions, at::kFloat, 1e-4});
      all.push_back({variant, positions, at::kBFloat16, 8e-2});
      all.push_back({variant, positions, at::kHalf, 2e-2});
    }
  }
  // Long enough for cuDNN's attention, one causal stream. Heads of 32 run our own.
  constexpr int64_t kWindow = 80;
  for (const auto& [type, tolerance] : {std::pair{at::kBFloat16, 8e-2}, {at::kHalf, 2e-2}}) {
    for (const LossPositions positions : {LossPositions::kLast, LossPositions::kAll}) {
      for (const char* variant : {"xland", "vintix", "pre_norm_previous", "xland_without_positions"})
        all.push_back({variant, positions, type, tolerance, kWindow});
    }
    for (const char* variant : {"xland", "vintix", "pre_norm_previous", "xland_without_positions"})
      all.push_back({variant, LossPositions::kAll, type, tolerance, kWindow, /*head_size=*/32});
    for (const char* variant : {"pre_norm_pieces", "vintix_rotary", "xland_transition"}) {
      all.push_back({variant, LossPositions::kLast, type, tolerance, kWindow});
      all.push_back(
          {variant, LossPositions::kAll, type, tolerance, kWindow, /*head_size=*/32});  // two streams
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Variants, GpuModel, ::testing::ValuesIn(cases()), [](const auto& tested) {
  const Case& tried = tested.param;
  return tried.variant + (tried.positions == LossPositions::kAll ? "_all_" : "_last_") +
         c10::toString(tried.type) + (tried.window > 0 ? "_long" : "") + (tried.head_size > 0 ? "_own" : "");
});

TEST(GpuAnySpace, PredictionsLossAndGradientAreThoseOfTheCpu) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const at::Device gpu(at::kCUDA, 0);
  constexpr double kTolerance = 1e-4;
  for (const testing::SpaceVariant& variant : testing::space_variants()) {
    SCOPED_TRACE(variant.name);
    const auto on_cpu = testing::small_model(variant), on_gpu = testing::small_model(variant);
    on_gpu->parameters().to(gpu);
    const Batch batch = testing::random_rows(variant, 6, variant.options.n_transit);
    EXPECT_LT(
        testing::relative_error(on_gpu->predict(batch.to(gpu)).actions.cpu(), on_cpu->predict(batch).actions),
        kTolerance);
    const auto expected = on_cpu->loss(batch, LossPositions::kAll, false);
    const auto found = on_gpu->loss(batch.to(gpu), LossPositions::kAll, false);
    EXPECT_LT(testing::relative_error(found.sum.cpu(), expected.sum), kTolerance);
    EXPECT_EQ(found.correct.defined(), expected.correct.defined());
    EXPECT_LT(testing::relative_error(testing::flat_gradient(*on_gpu, found.sum).cpu(),
                                      testing::flat_gradient(*on_cpu, expected.sum)),
              kTolerance);
  }
}

}  // namespace
}  // namespace adtrain
