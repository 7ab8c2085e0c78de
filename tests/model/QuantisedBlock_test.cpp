// Our own kernels around products of quantised weights, on a GPU or emulated, beside plain operators.

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "model/QuantisedNetwork.h"
#include "model/RandomBatch.h"
#include "support/FreshSeed.h"

namespace adtrain {
namespace {

using namespace adtrain::testing;

/// Networks of chosen pieces that run by sublayers: every norm, activation and choice of biases.
std::vector<Variant> networks() {
  std::vector<Variant> all = {variant("vintix"), variant("xland"), variant("pre_norm_previous"),
                              variant("vintix")};
  all[2].name = "swiglu";
  all[2].options.tf_n_inner = 96;
  all[2].options.pieces = {.positions = PositionKind::kAlibi, .qk_norm = Choice::kOn};
  all[3].name = "rotary";
  all[3].options.pieces.positions = PositionKind::kRotary;
  for (Variant& each : all) {
    each.options.tf_n_embd = 64;
    each.options.n_transit = 4;
  }
  return all;
}

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found - expected).norm() / expected.norm()).item<double>();
}

/// Of whole windows, and of rows that grow.
at::Tensor predictions(const Variant& network, const WeightQuantisation& how, const std::string& skipped,
                       at::ScalarType type, const Batch& rows) {
  const at::Device device = fused_device()->device;
  const auto model = small_model(network);
  model->quantise(quantised_names(model->parameters(), skipped, ""), how, device, type);
  const kernels::KernelPlan& plan = model->plan(LossPositions::kLast);
  EXPECT_EQ(plan.by_sublayers(), type != at::kFloat && network.options.fused_kernels != FusedKernels::kOff);
  std::vector<at::Tensor> all = {model->predict(rows.to(device)).actions.cpu()};
  const auto rolling = model->rolling();
  for (int64_t step = 0; step < network.options.n_transit; ++step) {
    const Batch newest = step == 0 ? part(rows, 1, 0, 1) : part(rows, 1, step - 1, 2);
    all.push_back(rolling(newest.to(device)).actions.cpu());
  }
  EXPECT_LT(error_of(all.back(), all.front()), type == at::kBFloat16 ? 5e-2 : 1e-2);
  return at::stack(all);
}

TEST(QuantisedBlocks, OurKernelsAroundTheirProductsAreThePlainOperators) {
  if (!fused_device()) GTEST_SKIP() << "no GPU here";
  const uint64_t seed = fresh_seed();
  // Networks take turns with formats.
  const std::vector<std::pair<WeightQuantisation, std::string>> formats = {
      {{.code = QuantisedCode::nf4}, ""}, {{.code = QuantisedCode::int8}, "*.down, blocks.0.attention.out"}};
  size_t turn = seed;
  for (const Variant& network : networks()) {
    const Batch rows = random_plain(3, network.options.n_transit);
    const auto& [how, skipped] = formats[turn++ % formats.size()];
    const at::Tensor exact = predictions(network, how, skipped, at::kFloat, rows);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(fmt::format("{}, {}, {}", network.name, how.name(), c10::toString(type)));
      Variant by_operators = network;
      by_operators.options.fused_kernels = FusedKernels::kOff;
      const double plain = error_of(predictions(by_operators, how, skipped, type, rows), exact);
      EXPECT_LT(plain, type == at::kHalf ? 1e-2 : 5e-2);
      EXPECT_LT(error_of(predictions(network, how, skipped, type, rows), exact), 1.5 * plain);
    }
  }
}

TEST(QuantisedBlocks, OfWidthsWithOneKernelForAllAreThePlainOperators) {
  if (!fused_device() || fused_device()->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  Variant network = variant("vintix");
  network.options.tf_n_embd = 2048;
  network.options.tf_n_head = 32;
  network.options.n_transit = 5;
  const Batch rows = random_plain(3, network.options.n_transit);
  const WeightQuantisation how = {.code = QuantisedCode::nf4};
  const at::Tensor exact = predictions(network, how, "", at::kFloat, rows);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(type));
    EXPECT_LT(error_of(predictions(network, how, "", type, rows), exact), type == at::kHalf ? 1e-2 : 5e-2);
  }
}

}  // namespace
}  // namespace adtrain
