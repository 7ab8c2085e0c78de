// How fast large networks with quantised weights are, beside the same in bf16. For people.

#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/Clock.h"
#include "base/Gpu.h"
#include "evaluation/Predictor.h"
#include "kernels/QuantisedCase.h"
#include "model/QuantisedNetwork.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::Quantised;

/// The networks of configs/large/, of random weights.
ModelOptions large_options(int64_t width, int64_t layers) {
  ModelOptions options;
  options.transformer_block = TransformerBlock::kVintix;
  options.tf_n_embd = width;
  options.tf_n_layer = layers;
  options.tf_n_head = width / 64;
  options.n_transit = 1024;
  options.tf_dropout = options.tf_attn_dropout = 0;
  return options;
}

struct Form {
  const char* name;
  std::optional<Quantised> kind = {};  ///< of the codes of linear layers, if any
  double outlier_threshold = 0;
};

/// In bf16 on the GPU.
std::unique_ptr<AlgorithmDistillation> random_network(const ModelOptions& options, const Form& form) {
  auto model = AlgorithmDistillation::create(options, ModelShape{}, 1);
  if (!form.kind) {
    model->parameters().to(at::kCUDA, at::kBFloat16);
    return model;
  }
  const WeightQuantisation how = {
      .code = *form.kind == Quantised::kInt8 ? QuantisedCode::int8 : QuantisedCode::nf4,
      .double_quantisation = *form.kind == Quantised::kNestedNf4,
      .outlier_threshold = form.outlier_threshold};
  const auto names = quantised_names(model->parameters(), "", "");
  QuantisedMatrices matrices;
  for (const auto& [name, leaf] : model->parameters().named_leaves()) {
    if (names.contains(name))
      matrices.emplace(name, testing::random_matrix(*form.kind, leaf.size(0), leaf.size(1), at::kCUDA));
  }
  model->take_quantised(std::move(matrices), how, at::kCUDA, at::kBFloat16);
  return model;
}

/// Milliseconds of one of `count` calls, the last of which returns once the GPU is done.
template <class Call>
double milliseconds(int64_t count, Call&& call) {
  at::cuda::getCurrentCUDAStream().synchronize();
  const Stopwatch watch;
  for (int64_t i = 0; i < count; ++i) call();
  at::cuda::getCurrentCUDAStream().synchronize();
  return 1e3 * watch.seconds() / static_cast<double>(count);
}

/// What is measured, and milliseconds of each.
std::map<std::string, double> measured(AlgorithmDistillation& model) {
  std::map<std::string, double> found;
  const int64_t window = model.options().n_transit;
  for (const auto& [rows, steps] : std::map<int64_t, int64_t>{{1, 600}, {8, 600}, {256, 300}}) {
    const Batch batch = testing::random_plain(rows, 2);
    const Predictor predict =
        rolling_predictors_of(model, EvaluationContext::kRolling, /*captures=*/true).begin();
    predict(testing::prefix(batch, 1));
    int64_t done = 1;
    const auto after = [&](int64_t count) {
      constexpr int64_t kMeasured = 20;
      for (; done < count; ++done) predict(batch);
      done += kMeasured;
      return milliseconds(kMeasured, [&] { predict(batch); });
    };
    for (const int64_t count : {int64_t{20}, steps})
      found[fmt::format("decoding {:3} rows after {:4} steps", rows, count)] = after(count);
  }
  constexpr int64_t kWindows = 16;
  const Batch windows = testing::random_plain(kWindows, window);
  const Predictor predict = predictor_of(model);
  predict(windows);
  found[fmt::format("pass of {} windows of {}", kWindows, window)] =
      milliseconds(5, [&] { predict(windows); });
  return found;
}

TEST(QuantisedSpeed, DISABLED_OfLargeNetworks) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::InferenceMode no_gradients;
  const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
  for (const auto& [width, layers] : std::map<int64_t, int64_t>{{1024, 26}, {2048, 20}}) {
    const ModelOptions options = large_options(width, layers);
    std::map<std::string, double> in_bf16;
    for (const Form& form :
         {Form{"bf16"}, Form{"8 bits", Quantised::kInt8},
          Form{"8 bits, outliers of 6", Quantised::kInt8, 6.0}, Form{"nf4", Quantised::kNf4}}) {
      const auto model = random_network(options, form);
      const auto found = measured(*model);
      if (!form.kind) in_bf16 = found;
      std::cout << fmt::format("width {}, {} layers, {}", width, layers, form.name) << std::endl;
      for (const auto& [what, taken] : found)
        std::cout << fmt::format("  {}: {:.3f} ms ({:.2f})", what, taken, in_bf16.at(what) / taken)
                  << std::endl;
    }
  }
}

}  // namespace
}  // namespace adtrain
