#include "model/kernels/rows/BlockHalves.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/autograd/custom_function.h>

#include "model/Layers.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/KernelOperation.h"
#include "model/kernels/rows/GpuRows.h"
#include "model/kernels/rows/Products.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

/// A third of the input projection's output, (B, tokens, width), by heads.
at::Tensor by_heads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);
}
at::Tensor without_heads(const at::Tensor& x) {
  return x.transpose(1, 2).flatten(2);
}

/// Matrices side by side, and the sums of their columns added to `sums`.
at::Tensor joined(const std::vector<at::Tensor>& matrices, const at::Tensor& sums) {
  if (matrices.size() > 1) return joined_columns(matrices, sums);
  add_columns(matrices[0], sums);
  return matrices[0];
}

/// What the input projection leaves for its backward pass.
struct Projected : torch::CustomClassHolder {
  Projected(const at::Tensor& input, bool by_heads, GradientSink* to) : x(input), split(by_heads), sink(to) {}
  at::Tensor x;
  bool split;  ///< by heads
  GradientSink* sink;
};

/// Where only the last tokens are asked for, the others have no queries. What comes out stands by heads,
/// queries, keys and values each for itself, or as the products leave it; behind it the last tokens of x.
class BeforeAttention : public autograd::Function<BeforeAttention> {
 public:
  static autograd::variable_list forward(autograd::AutogradContext* context, const at::Tensor& x,
                                         const at::Tensor& weight, const at::Tensor& bias, int64_t rows,
                                         bool split, const BlockPass& pass) {
    context->save_for_backward({weight, bias});
    context->saved_data["remembered"] =
        c10::IValue::make_capsule(c10::make_intrusive<Projected>(x, split, pass.sink));
    const at::Tensor last = last_of(x, 1, rows);
    const Search search = search_if(pass.trains);
    autograd::variable_list result;
    if (rows == x.size(1)) {
      result = {product(x, weight, bias, search)};
    } else {
      result = {product(last, of_queries(weight), of_queries(bias), search),
                product(x, of_others(weight), of_others(bias), search)};
    }
    if (split) result = thirds_by_heads(result, x.size(-1), pass.heads);
    result.push_back(last);
    return result;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const auto projected = taken_from<Projected>(context);
    const at::Tensor &x = projected->x, &weight = saved[0];
    const c10::cuda::CUDAGuard on_device(weight.device());
    GradientPlace place(saved, projected->sink);
    std::vector<at::Tensor> d_projected(gradients.begin(), gradients.end() - 1);
    if (projected->split) {
      for (at::Tensor& d_third : d_projected) d_third = without_heads(d_third);
    }
    // behind_attention made the residual's gradient for this pass alone.
    at::Tensor d_x = gradients.back().contiguous();
    const int64_t rows = d_x.size(1);
    if (rows == x.size(1)) {
      const at::Tensor d_all = joined(d_projected, place.of(1));
      add_weight_gradient(d_all, x, place.of(0));
      add_input_gradient(d_all, weight, d_x);
    } else {
      const at::Tensor d_of_queries = joined({d_projected[0]}, of_queries(place.of(1)));
      add_weight_gradient(d_of_queries, last_of(x, 1, rows), of_queries(place.of(0)));
      add_input_gradient(d_of_queries, of_queries(weight), d_x);
      const at::Tensor d_of_others =
          joined({d_projected.begin() + 1, d_projected.end()}, of_others(place.of(1)));
      add_weight_gradient(d_of_others, x, of_others(place.of(0)));
      const at::Tensor d_last = std::exchange(d_x, input_gradient(d_of_others, of_others(weight)).view_as(x));
      last_of(d_x, 1, rows).add_(d_last);
    }
    autograd::variable_list result = place.finish();
    result.insert(result.begin(), d_x);
    result.resize(result.size() + 3);  // rows, split and pass have no gradients
    return result;
  }

 private:
  /// Of a parameter (3 width, …).
  static at::Tensor of_queries(const at::Tensor& of_all) { return of_all.narrow(0, 0, of_all.size(0) / 3); }
  static at::Tensor of_others(const at::Tensor& of_all) {
    const int64_t width = of_all.size(0) / 3;
    return of_all.narrow(0, width, 2 * width);
  }
  static autograd::variable_list thirds_by_heads(const autograd::variable_list& matrices, int64_t width,
                                                 int64_t heads) {
    autograd::variable_list thirds;
    for (const at::Tensor& columns : matrices) {
      for (const at::Tensor& third : columns.split(width, -1)) thirds.push_back(by_heads(third, heads));
    }
    return thirds;
  }
};

/// Dropout's bits at the three places behind a block's attention.
struct KeptPlaces {
  KeptElements projection, inner, output;

  static KeptPlaces draw(int64_t elements, int64_t inner_elements, int64_t number, const BlockPass& pass) {
    if (pass.keep_hidden.always()) return {};
    const int64_t words = words_for(elements), inner_words = words_for(inner_elements);
    const at::Tensor drawn = pass.keep_bits(pass.keep_hidden, 2 * words + inner_words, number);
    const auto part = [&](int64_t first, int64_t count) {
      return KeptElements{drawn.narrow(0, first, count).view(at::kByte), pass.keep_hidden.scale()};
    };
    return {part(0, words), part(words, inner_words), part(words + inner_words, words)};
  }

 private:
  static int64_t words_for(int64_t elements) { return (elements + 31) / 32; }
};

/// In the order in which they lie.
enum Parameter : size_t {
  kProjectionWeight,
  kProjectionBias,
  kNorm1Weight,
  kNorm1Bias,
  kLinear1Weight,
  kLinear1Bias,
  kLinear2Weight,
  kLinear2Bias,
  kNorm2Weight,
  kNorm2Bias
};
constexpr size_t kOfNormedSum = 3;  ///< the bias in front of a norm and those of the norm are neighbours

/// What the forward pass leaves for the backward pass.
struct Remembered : torch::CustomClassHolder {
  at::Tensor read, product, inner;
  NormedSum sum1, sum2;  ///< the second without y
  KeptPlaces kept;
  GradientSink* sink = nullptr;
};

class BehindAttention : public autograd::Function<BehindAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& read,
                            const at::Tensor& residual, at::TensorList parameters, int64_t draw,
                            const BlockPass& pass) {
    const c10::cuda::CUDAGuard on_device(read.device());
    const at::TensorList& p = parameters;
    const int64_t inner_elements = residual.numel() / residual.size(-1) * p[kLinear1Bias].numel();
    const Search search = search_if(pass.trains);
    auto own = c10::make_intrusive<Remembered>();
    own->sink = pass.sink;
    own->read = read;
    own->kept = KeptPlaces::draw(residual.numel(), inner_elements, draw, pass);
    own->sum1 = normed_sum(residual, product(read, p[kProjectionWeight], {}, search), p[kProjectionBias],
                           p[kNorm1Weight], p[kNorm1Bias], kNormEpsilon, own->kept.projection);
    own->product = product(own->sum1.y, p[kLinear1Weight], {}, search);
    own->inner = biased_gelu(own->product, p[kLinear1Bias], own->kept.inner);
    own->sum2 = normed_sum(own->sum1.y, product(own->inner, p[kLinear2Weight], {}, search), p[kLinear2Bias],
                           p[kNorm2Weight], p[kNorm2Bias], kNormEpsilon, own->kept.output);
    const at::Tensor y = std::exchange(own->sum2.y, {});
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(own));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list p = context->get_saved_variables();
    const auto own = taken_from<Remembered>(context);
    const c10::cuda::CUDAGuard on_device(own->read.device());
    GradientPlace place(p, own->sink);

    const auto [d_y, d_product2] = normed_sum_backward(
        gradients[0], own->sum2, p[kNorm2Weight], own->kept.output, place.of(kLinear2Bias, kOfNormedSum));
    add_weight_gradient(d_product2, own->inner, place.of(kLinear2Weight));
    const at::Tensor d_inner = input_gradient(d_product2, p[kLinear2Weight]);
    const at::Tensor d_product =
        biased_gelu_backward(d_inner, own->product, p[kLinear1Bias], own->kept.inner, place.of(kLinear1Bias));
    add_weight_gradient(d_product, own->sum1.y, place.of(kLinear1Weight));
    add_input_gradient(d_product, p[kLinear1Weight], d_y);

    const auto [d_residual, d_product1] = normed_sum_backward(
        d_y, own->sum1, p[kNorm1Weight], own->kept.projection, place.of(kProjectionBias, kOfNormedSum));
    add_weight_gradient(d_product1, own->read, place.of(kProjectionWeight));
    const at::Tensor d_read = input_gradient(d_product1, p[kProjectionWeight]);

    autograd::variable_list result = place.finish();
    result.insert(result.begin(), {d_read, d_residual});
    result.resize(result.size() + 2);  // draw and pass have no gradients
    return result;
  }
};

}  // namespace

AttentionInput before_attention(const at::Tensor& x, const std::vector<at::Tensor>& parameters, int64_t rows,
                                const BlockPass& pass) {
  const autograd::variable_list all =
      BeforeAttention::apply(x, parameters[0], parameters[1], rows, /*split=*/true, pass);
  return {all[0], all[1], all[2], all[3]};
}

ProjectedInput before_projected_attention(const at::Tensor& x, const std::vector<at::Tensor>& parameters,
                                          int64_t rows, const BlockPass& pass) {
  autograd::variable_list all =
      BeforeAttention::apply(x, parameters[0], parameters[1], rows, /*split=*/false, pass);
  const at::Tensor residual = all.back();
  all.pop_back();
  return {all, residual};
}

at::Tensor behind_attention(const at::Tensor& read, const at::Tensor& residual,
                            const std::vector<at::Tensor>& parameters, int64_t draw, const BlockPass& pass) {
  return BehindAttention::apply(read, residual, at::TensorList(parameters), draw, pass);
}

}  // namespace adtrain::kernels
