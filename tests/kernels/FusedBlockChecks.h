#pragma once

#include <array>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include "kernels/FusedBlockCase.h"
#include "kernels/block/attention_backward/AttentionBackward.h"
#include "kernels/block/forward/BlockForward.h"
#include "kernels/block/mlp_backward/MlpBackward.h"
#include "kernels/primitives/PartialSums.h"

/// Each kernel of a fused post-norm block for itself, twice, against float64: on a GPU, or emulated on the
/// CPU. What the MLP's backward pass reads comes from the float64 reference, rounded; what the attention's
/// reads from the forward pass, as the sums of its weights must go with the rounded scores.
namespace adtrain::testing {

/// bf16 keeps 8 bits. Errors of a chain of roundings have stayed below seven tenths of these shares of the
/// norm, in all random input that was tried. Where scores are steep, a rounded query moves one of hundreds by
/// ones, and the weights with it.
constexpr double kGradientTolerance = 1.6e-2;
inline double statistics_tolerance(const FusedBlockCase& tried) {
  return tried.steep() ? 1.5e-2 : 6e-3;
}
inline double value_tolerance(const FusedBlockCase& tried) {
  return tried.steep() ? 4e-2 : 8e-3;
}
inline double gradient_tolerance(const FusedBlockCase& tried) {
  return tried.steep() ? 0.15 : kGradientTolerance;
}

inline cudaStream_t stream_of(at::Device device) {
  return device.is_cuda() ? c10::cuda::getCurrentCUDAStream().stream() : nullptr;
}

inline void take_activations(FusedBlockData& data, const FusedBlockReference& reference) {
  const at::NoGradGuard no_grad;
  data.attention_output.copy_(reference.attention_output);
  data.lse.copy_(reference.lse);
  data.normed1.copy_(reference.normed1);
  data.inverse1.copy_(reference.inverse1);
  data.normed2.copy_(reference.normed2);
  data.inverse2.copy_(reference.inverse2);
}

inline at::Tensor sum_of(const at::Tensor& parts) {
  at::Tensor sum = at::zeros({parts.size(1)}, parts.options());
  kernels::add_parts(parts.data_ptr<float>(), static_cast<int>(parts.size(0)), parts.size(1),
                     sum.data_ptr<float>(), stream_of(parts.device()));
  return sum;
}

/// Partial sums of a kernel before the tested one, which that one adds to what has been there.
class PartsAhead {
 public:
  explicit PartsAhead(at::Device device)
      : parts_(at::randn(
            {at::randint(1, 150, {1}).item<int64_t>(), 4 * at::randint(1, 2000, {1}).item<int64_t>()},
            at::device(device))),
        sums_(at::randn({parts_.size(1)}, at::device(device))),
        expected_(sums_.to(at::kDouble) + parts_.sum({0}, false, at::kDouble)) {}

  kernels::UnaddedParts unadded() const {
    return {parts_.data_ptr<float>(), static_cast<int>(parts_.size(0)), parts_.size(1),
            sums_.data_ptr<float>()};
  }
  void expect_added() const {
    EXPECT_LT((sums_ - expected_).abs().max().item<double>(), 1e-4) << parts_.sizes();
  }

 private:
  at::Tensor parts_, sums_, expected_;
};

struct NamedPlace {
  const char* name;
  int offset;  ///< in a half's sums
};

/// What two launches of a backward pass made: the gradient of its input, and the sums for its parameters.
struct Launched {
  std::array<at::Tensor, 2> of_input, sums;

  /// `parameters`: the expected gradients of `places`, in their order.
  void expect(const at::Tensor& input, const at::Tensor* parameters, const std::vector<NamedPlace>& places,
              double tolerance) const {
    EXPECT_LT(error_of(of_input[0], input), tolerance);
    for (size_t k = 0; k < places.size(); ++k) {
      const at::Tensor& right = parameters[k];
      EXPECT_LT(error_of(sums[0].narrow(0, places[k].offset, right.numel()), right), tolerance)
          << places[k].name;
    }
    EXPECT_TRUE(at::equal(of_input[0], of_input[1])) << "not the same on repeat";
    EXPECT_TRUE(at::equal(sums[0], sums[1])) << "not the same on repeat";
  }
};

inline void expect_forward_is_the_reference(const FusedBlockCase& tried, at::Device device) {
  FusedBlockData data(tried, device);
  const FusedBlockReference reference(data);
  const at::Tensor y = data.poisoned(data.dy.sizes());
  kernels::block_forward(data.shape(), data.weights(), data.keep(), data.activations(), FusedBlockData::of(y),
                         stream_of(device));
  const auto error = [&](const at::Tensor& found, const at::Tensor& expected) {
    return error_of(data.without_padding(found), data.without_padding(expected));
  };
  const auto rows_first = [](const at::Tensor& of_heads) { return of_heads.transpose(1, 2); };
  EXPECT_LT(error(data.attention_output, reference.attention_output), value_tolerance(tried));
  EXPECT_LT(data.without_padding(rows_first(data.lse - reference.lse)).abs().max().item<double>(),
            tried.steep() ? 1.0 : 0.1);
  EXPECT_LT(error(data.normed1, reference.normed1), value_tolerance(tried));
  EXPECT_LT(error(data.inverse1, reference.inverse1), statistics_tolerance(tried));
  EXPECT_LT(error(data.normed2, reference.normed2), value_tolerance(tried));
  EXPECT_LT(error(data.inverse2, reference.inverse2), statistics_tolerance(tried));
  EXPECT_LT(error(y, reference.y), value_tolerance(tried));
  for (const at::Tensor& all : {data.normed1, data.inverse1, data.normed2, data.inverse2, y}) {
    EXPECT_TRUE(all.isfinite().all().item<bool>()) << "padding must be finite";
  }

  const at::Tensor again = at::empty_like(y);
  kernels::block_forward(data.shape(), data.weights(), data.keep(), data.activations(),
                         FusedBlockData::of(again), stream_of(device));
  EXPECT_TRUE(at::equal(y, again)) << "not the same on repeat";
}

inline void expect_mlp_backward_is_the_reference(const FusedBlockCase& tried, at::Device device) {
  FusedBlockData data(tried, device);
  const FusedBlockReference reference(data);
  take_activations(data, reference);
  const auto expected = reference.backward(data.dy);

  const auto places = kernels::MlpGradients::of(tried.shape.width);
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    launched.of_input[repeat] = data.poisoned(data.dy.sizes());
    const at::Tensor parts =
        data.poisoned({kernels::mlp_backward_parts(tried.shape), places.total}, at::kFloat);
    kernels::mlp_backward(data.shape(), data.weights(), data.keep(), data.activations(),
                          FusedBlockData::of(data.dy), FusedBlockData::of(launched.of_input[repeat]),
                          parts.data_ptr<float>(), stream_of(device));
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(expected[0], &expected[2 + 6],
                  {{"linear1_weight", places.linear1_weight},
                   {"linear1_bias", places.linear1_bias},
                   {"linear2_weight", places.linear2_weight},
                   {"linear2_bias", places.linear2_bias},
                   {"norm2_weight", places.norm2_weight},
                   {"norm2_bias", places.norm2_bias}},
                  kGradientTolerance);
}

inline void expect_attention_backward_is_the_reference(const FusedBlockCase& tried, at::Device device) {
  FusedBlockData data(tried, device);
  const FusedBlockReference reference(data);
  const at::Tensor y = at::empty_like(data.dy);
  kernels::block_forward(data.shape(), data.weights(), data.keep(), data.activations(), FusedBlockData::of(y),
                         stream_of(device));
  const auto expected = reference.backward(data.dy);
  const at::Tensor of_x1 = expected[0].to(at::kBFloat16).contiguous();

  const auto places = kernels::AttentionGradients::of(tried.shape.width);
  Launched launched;
  for (int repeat = 0; repeat < 2; ++repeat) {
    launched.of_input[repeat] = data.poisoned(data.x.sizes());
    const at::Tensor parts =
        data.poisoned({kernels::attention_backward_parts(tried.shape), places.total}, at::kFloat);
    const at::Tensor carried = data.poisoned({kernels::attention_backward_carried(tried.shape)});
    const PartsAhead ahead(device);
    kernels::attention_backward(data.shape(), data.weights(), data.keep(), data.activations(),
                                FusedBlockData::of(of_x1), FusedBlockData::of(launched.of_input[repeat]),
                                parts.data_ptr<float>(), FusedBlockData::of(carried), ahead.unadded(),
                                stream_of(device));
    ahead.expect_added();
    launched.sums[repeat] = sum_of(parts);
  }
  launched.expect(expected[1], &expected[2],
                  {{"in_proj_weight", places.in_proj_weight},
                   {"in_proj_bias", places.in_proj_bias},
                   {"out_proj_weight", places.out_proj_weight},
                   {"out_proj_bias", places.out_proj_bias},
                   {"norm1_weight", places.norm1_weight},
                   {"norm1_bias", places.norm1_bias}},
                  gradient_tolerance(tried));
}

}  // namespace adtrain::testing
