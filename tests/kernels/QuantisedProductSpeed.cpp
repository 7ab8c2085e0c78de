// How fast products with quantised weights are, beside the library's with bf16 weights. For people.

#include <algorithm>
#include <array>
#include <iostream>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/FusedDevice.h"
#include "kernels/KernelSpeed.h"
#include "kernels/QuantisedCase.h"
#include "kernels/gemm/Gemm.h"
#include "kernels/quantised/OutlierProduct.h"
#include "kernels/quantised/QuantisedProduct.h"

namespace adtrain {
namespace {

using kernels::ProductWay;
using testing::Quantised;

struct Shape {
  int64_t in, out;
};

/// The products of a block of this width: queries, keys and values, attention's output, the MLP.
std::vector<Shape> shapes_of_block(int64_t width) {
  return {{width, 3 * width}, {width, width}, {width, 4 * width}, {4 * width, width}};
}

/// So many matrices of `bytes` bytes are more than fit the L2 cache.
int64_t copies_of(double bytes) {
  constexpr double kUncached = 256e6;
  constexpr int64_t kLeast = 4, kMost = 512;
  return std::clamp(static_cast<int64_t>(kUncached / bytes), kLeast, kMost);
}

/// Microseconds of launch(i), i = 0 … count − 1, one after the other in a CUDA graph.
template <class Launch>
double captured_microseconds(int64_t count, Launch&& launch) {
  for (int64_t i = 0; i < std::min<int64_t>(count, 3); ++i) launch(i);
  at::cuda::CUDAGraph graph;
  const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  c10::cuda::getCurrentCUDAStream().synchronize();
  const c10::cuda::CUDAStreamGuard guard(stream);
  graph.capture_begin();
  for (int64_t i = 0; i < count; ++i) launch(i);
  graph.capture_end();
  return testing::microseconds([&] { graph.replay(); }) / static_cast<double>(count);
}

class QuantisedProductSpeed : public ::testing::TestWithParam<int64_t> {};

TEST_P(QuantisedProductSpeed, DISABLED_BesideTheLibrary) {
  const auto device = testing::fused_device();
  if (!device || device->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  const c10::InferenceMode no_gradients;
  const int64_t width = GetParam();
  constexpr std::array kKinds = {Quantised::kNf4, Quantised::kNestedNf4, Quantised::kInt8};
  const auto options = at::device(device->device).dtype(at::kBFloat16);
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096}) {
    std::array<double, 1 + kKinds.size()> totals = {};
    for (const auto& [in, out] : shapes_of_block(width)) {
      const at::Tensor input = at::randn({rows, in}, options);
      std::array<double, 1 + kKinds.size()> taken;
      {
        const int64_t copies = copies_of(2.0 * static_cast<double>(in * out));
        const at::Tensor weights = at::randn({copies, out, in}, options);
        taken[0] = captured_microseconds(
            copies, [&](int64_t i) { (void)kernels::product(input, weights.select(0, i)); });
      }
      for (size_t kind = 0; kind < kKinds.size(); ++kind) {
        const double bytes = static_cast<double>(in * out) * (kKinds[kind] == Quantised::kInt8 ? 1 : 0.5);
        std::vector<QuantisedMatrix> matrices;
        for (int64_t i = 0; i < copies_of(bytes); ++i)
          matrices.push_back(testing::random_matrix(kKinds[kind], out, in, device->device));
        taken[1 + kind] = captured_microseconds(static_cast<int64_t>(matrices.size()), [&](int64_t i) {
          (void)quantised_linear(input, matrices[i], {});
        });
      }
      std::string line = fmt::format("{:4} rows, {:4} -> {:4}: bf16 {:7.2f} us", rows, in, out, taken[0]);
      for (size_t kind = 0; kind < kKinds.size(); ++kind) {
        line += fmt::format("; {} {:7.2f} ({:.2f})", testing::name_of(kKinds[kind]), taken[1 + kind],
                            taken[0] / taken[1 + kind]);
      }
      std::cout << line << std::endl;
      for (size_t i = 0; i < totals.size(); ++i) totals[i] += taken[i];
    }
    std::string line = fmt::format("{:4} rows, a block of width {}: bf16 {:.1f} us", rows, width, totals[0]);
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      line += fmt::format("; {} {:.1f} ({:.2f})", testing::name_of(kKinds[kind]), totals[1 + kind],
                          totals[0] / totals[1 + kind]);
    }
    std::cout << line << std::endl;
  }
}

/// By each way that fits, beside the library's product with bf16 weights; tiles with the fastest number of
/// splits.
TEST_P(QuantisedProductSpeed, DISABLED_Ways) {
  const auto device = testing::fused_device();
  if (!device || device->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  const c10::InferenceMode no_gradients;
  struct Way {
    ProductWay way;
    const char* name;
    int64_t features, rows;  ///< of a tile; no tiles: 0
  };
  const std::vector<Way> ways = {{ProductWay::kLibrary, "library", 0, 0},
                                 {ProductWay::kTile128x64, "128x64", 128, 64},
                                 {ProductWay::kTile128x128, "128x128", 128, 128},
                                 {ProductWay::kTile128x256, "128x256", 128, 256}};
  constexpr int64_t kProcessors = 132;
  const auto options = at::device(device->device).dtype(at::kBFloat16);
  for (const auto& [in, out] : shapes_of_block(GetParam())) {
    const at::Tensor weights = at::randn({copies_of(2.0 * static_cast<double>(in * out)), out, in}, options);
    std::array<std::vector<QuantisedMatrix>, 2> matrices;
    for (size_t kind = 0; kind < 2; ++kind) {
      const Quantised form = kind == 0 ? Quantised::kNf4 : Quantised::kInt8;
      for (int64_t i = 0; i < copies_of((kind + 1) * 0.5 * static_cast<double>(in * out)); ++i)
        matrices[kind].push_back(testing::random_matrix(form, out, in, device->device));
    }
    for (const int64_t rows : {64, 128, 256, 512, 1024}) {
      const at::Tensor input = at::randn({rows, in}, options);
      std::string line = fmt::format("{} {}>{}: bf16 {:.1f}", rows, in, out,
                                     captured_microseconds(weights.size(0), [&](int64_t i) {
                                       (void)kernels::product(input, weights.select(0, i));
                                     }));
      for (size_t kind = 0; kind < 2; ++kind) {
        if (kind == 1 && rows != 256) continue;
        line += kind == 0 ? " nf4" : " int8";
        for (const Way& way : ways) {
          const int64_t tiles =
              way.features == 0 ? kProcessors : ((out - 1) / way.features + 1) * ((rows - 1) / way.rows + 1);
          if (way.rows > 2 * rows) continue;
          double best = 1e9, alone = 0;
          int64_t best_splits = 0;
          for (const int splits : {1, 2, 3, 4, 6, 8}) {
            if (splits > 1 && (splits * tiles > 2 * kProcessors || way.features == 0 ||
                               splits * 2 * kernels::kBlockColumns > in))
              break;
            const double taken =
                captured_microseconds(static_cast<int64_t>(matrices[kind].size()), [&](int64_t i) {
                  (void)quantised_linear_by({way.way, splits}, input, matrices[kind][i], {});
                });
            if (splits == 1) alone = taken;
            if (taken < best) best = taken, best_splits = splits;
          }
          line += fmt::format(" {} {:.1f}/{}({:.1f})", way.name, best, best_splits, alone);
        }
      }
      std::cout << line << std::endl;
    }
  }
}

/// LLM.int8's product without outliers, and with some columns of them, beside its product of whole numbers
/// alone.
TEST_P(QuantisedProductSpeed, DISABLED_WithOutliers) {
  const auto device = testing::fused_device();
  if (!device || device->device.is_cpu()) GTEST_SKIP() << "no GPU here";
  const c10::InferenceMode no_gradients;
  constexpr double kThreshold = 6;
  const auto options = at::device(device->device).dtype(at::kBFloat16);
  for (const int64_t rows : {1, 8, 32, 256, 2048, 16384}) {
    for (const auto& [in, out] : shapes_of_block(GetParam())) {
      const at::Tensor weights =
          at::randn({copies_of(2.0 * static_cast<double>(in * out)), out, in}, options);
      std::vector<QuantisedMatrix> matrices;
      for (int64_t i = 0; i < copies_of(static_cast<double>(in * out)); ++i)
        matrices.push_back(testing::random_matrix(Quantised::kInt8, out, in, device->device));
      const at::Tensor input = at::randn({rows, in}, options).clamp(-5, 5);
      std::string line = fmt::format("{:5} rows, {:4} -> {:4}: bf16 {:7.2f} us", rows, in, out,
                                     captured_microseconds(weights.size(0), [&](int64_t i) {
                                       (void)kernels::product(input, weights.select(0, i));
                                     }));
      const auto count = static_cast<int64_t>(matrices.size());
      for (const int64_t apart : {0, 1, 16, 256}) {
        input.narrow(1, 0, apart).fill_(7);
        line += fmt::format("; {} apart {:7.2f}", apart, captured_microseconds(count, [&](int64_t i) {
                              (void)kernels::outlier_product(input, matrices[i], {}, kThreshold);
                            }));
      }
      const at::Tensor codes = at::zeros({std::max<int64_t>(rows, 32), in}, options.dtype(at::kChar));
      line += fmt::format("; whole numbers {:7.2f}", captured_microseconds(count, [&](int64_t i) {
                            (void)at::_int_mm(codes, matrices[i].codes.t());
                          }));
      std::cout << line << std::endl;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, QuantisedProductSpeed, ::testing::Values(1024, 2048),
                         [](const auto& tested) { return fmt::format("{}", tested.param); });

}  // namespace
}  // namespace adtrain
