#include "kernels/cpu/CpuRows.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cpu/CpuDropout.h"
#include "kernels/cpu/SmallMatrix.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

constexpr int64_t kChunk = 64;  ///< rows per task of a thread

/// x (…, in) Wᵀ as a matrix (rows, out).
at::Tensor product(const at::Tensor& x, const at::Tensor& weight) {
  return at::mm(x.reshape({-1, weight.size(1)}), weight.t());
}

struct ProductGradients {
  at::Tensor d_x, d_weight;
};

ProductGradients product_gradients(const at::Tensor& d_product, const at::Tensor& x,
                                   const at::Tensor& weight) {
  return {at::mm(d_product, weight).view_as(x), at::mm(d_product.t(), x.reshape({-1, weight.size(1)}))};
}

/// Calls work(first row, end, chunk) for every chunk of the rows.
template <class Work>
void for_each_chunk(int64_t rows, Work work) {
  at::parallel_for(0, (rows + kChunk - 1) / kChunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      work(chunk * kChunk, std::min(rows, (chunk + 1) * kChunk), chunk);
    }
  });
}

/// Zeros (chunks, sums, width). Each chunk has its own sums, which are added afterwards, so that the result
/// does not depend on the number of threads.
at::Tensor sums_of_chunks(const at::Tensor& rows, int64_t sums) {
  return at::zeros({(rows.size(0) + kChunk - 1) / kChunk, sums, rows.size(1)}, rows.options());
}

void add(float* to, const Vec& vec) {
  store(to, load(to) + vec);
}

struct GeluAndSlope {
  Vec value, slope;
};

/// x Φ(x) and its derivative Φ(x) + x φ(x). Φ's tail uses Hastings' polynomial (Abramowitz and Stegun,
/// 7.1.26), whose error is below 1e-7. Both the tail and the density φ need e^(−x² / 2).
GeluAndSlope gelu(const Vec& x) {
  constexpr float kRootOfHalf = 0.70710678F;
  constexpr float kDensityAtZero = 0.39894228F;
  const Vec size = x < 0 ? -x : x;
  const Vec bell = exp_at_least(x * x * -0.5F);
  const Vec t = 1.0F / (1.0F + 0.3275911F * kRootOfHalf * size);
  Vec polynomial = t * 1.061405429F - 1.453152027F;
  polynomial = polynomial * t + 1.421413741F;
  polynomial = polynomial * t - 0.284496736F;
  polynomial = polynomial * t + 0.254829592F;
  const Vec tail = 0.5F * polynomial * t * bell;
  const Vec probability = x < 0 ? tail : 1.0F - tail;
  return {x * probability, probability + x * bell * kDensityAtZero};
}

class LinearGelu : public autograd::Function<LinearGelu> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, double dropout_rate) {
    const at::Tensor slope = product(x, weight);  // replaced by gelu's derivative, row by row
    const CpuDropout dropout = CpuDropout::drawn(dropout_rate, x.size(0), slope.size(0));
    const at::Tensor out = at::empty_like(slope);
    const int64_t width = slope.size(1);
    const auto* biases = bias.const_data_ptr<float>();
    auto* slopes = slope.data_ptr<float>();
    auto* outs = out.data_ptr<float>();
    for_each_chunk(slope.size(0), [=](int64_t first, int64_t end, int64_t) {
      for (int64_t row = first; row < end; ++row) {
        const CpuDropout::Row kept = dropout.row(row);
        for (int64_t d = 0; d < width; d += kLanes) {
          const GeluAndSlope found = gelu(load(slopes + row * width + d) + load(biases + d));
          const Vec factors = kept.factors(d);
          store(outs + row * width + d, found.value * factors);
          store(slopes + row * width + d, found.slope * factors);
        }
      }
    });
    context->save_for_backward({x, weight, slope});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = width;
    return out.view(shape);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& slope = saved[2];
    const int64_t width = slope.size(1);
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor d_product = at::empty_like(slope);
    const at::Tensor d_bias = sums_of_chunks(slope, 1);
    const auto* d_outs = d_out.const_data_ptr<float>();
    const auto* slopes = slope.const_data_ptr<float>();
    auto* d_products = d_product.data_ptr<float>();
    auto* d_biases = d_bias.data_ptr<float>();
    for_each_chunk(slope.size(0), [=](int64_t first, int64_t end, int64_t chunk) {
      for (int64_t row = first; row < end; ++row) {
        for (int64_t d = 0; d < width; d += kLanes) {
          const Vec gradient = load(d_outs + row * width + d) * load(slopes + row * width + d);
          store(d_products + row * width + d, gradient);
          add(d_biases + chunk * width + d, gradient);
        }
      }
    });
    const auto [d_x, d_weight] = product_gradients(d_product, saved[0], saved[1]);
    return {d_x, d_weight, d_bias.sum(0).flatten(), {}};
  }
};

class LinearNormedSum : public autograd::Function<LinearNormedSum> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& residual, const at::Tensor& norm_weight,
                            const at::Tensor& norm_bias, double epsilon, double dropout_rate) {
    const at::Tensor along = residual.contiguous();
    const at::Tensor normalised = product(x, weight);  // normalised in place, row by row
    const CpuDropout dropout = CpuDropout::drawn(dropout_rate, x.size(0), normalised.size(0));
    const at::Tensor inverse_deviation = at::empty({normalised.size(0)}, x.options());
    const at::Tensor out = at::empty_like(along);
    const int64_t width = normalised.size(1);
    const auto* biases = bias.const_data_ptr<float>();
    const auto* residuals = along.const_data_ptr<float>();
    const auto* norm_weights = norm_weight.const_data_ptr<float>();
    const auto* norm_biases = norm_bias.const_data_ptr<float>();
    auto* rows = normalised.data_ptr<float>();
    auto* inverses = inverse_deviation.data_ptr<float>();
    auto* outs = out.data_ptr<float>();
    for_each_chunk(normalised.size(0), [=](int64_t first, int64_t end, int64_t) {
      for (int64_t row = first; row < end; ++row) {
        float* values = rows + row * width;
        const CpuDropout::Row kept = dropout.row(row);
        for (int64_t d = 0; d < width; d += kLanes) {
          const Vec summand = (load(values + d) + load(biases + d)) * kept.factors(d);
          store(values + d, load(residuals + row * width + d) + summand);
        }
        inverses[row] = normalise(values, width, static_cast<float>(epsilon));
        for (int64_t d = 0; d < width; d += kLanes) {
          store(outs + row * width + d, load(values + d) * load(norm_weights + d) + load(norm_biases + d));
        }
      }
    });
    context->save_for_backward({x, weight, norm_weight, normalised, inverse_deviation});
    dropout.save(context->saved_data);
    return out;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& normalised = saved[3];
    const int64_t width = normalised.size(1);
    const CpuDropout dropout = CpuDropout::saved(context->saved_data);
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor d_residual = at::empty_like(d_out);
    const at::Tensor d_product = at::empty_like(normalised);
    const at::Tensor d_parameters = sums_of_chunks(normalised, kParameters);
    const auto* d_outs = d_out.const_data_ptr<float>();
    const auto* norm_weights = saved[2].const_data_ptr<float>();
    const auto* rows = normalised.const_data_ptr<float>();
    const auto* inverses = saved[4].const_data_ptr<float>();
    auto* d_residuals = d_residual.data_ptr<float>();
    auto* d_products = d_product.data_ptr<float>();
    auto* sums = d_parameters.data_ptr<float>();
    for_each_chunk(normalised.size(0), [=](int64_t first, int64_t end, int64_t chunk) {
      float* d_biases = sums + chunk * kParameters * width;
      float* d_norm_weights = d_biases + width;
      float* d_norm_biases = d_norm_weights + width;
      for (int64_t row = first; row < end; ++row) {
        const CpuDropout::Row kept = dropout.row(row);
        const float* values = rows + row * width;
        const float* d_values = d_outs + row * width;
        Vec total = {}, along = {};
        for (int64_t d = 0; d < width; d += kLanes) {
          const Vec gradient = load(d_values + d);
          const Vec value = load(values + d);
          const Vec weighed = gradient * load(norm_weights + d);
          total += weighed;
          along += weighed * value;
          add(d_norm_weights + d, gradient * value);
          add(d_norm_biases + d, gradient);
        }
        const float mean = sum(total) / static_cast<float>(width);
        const float pull = sum(along) / static_cast<float>(width);
        for (int64_t d = 0; d < width; d += kLanes) {
          const Vec weighed = load(d_values + d) * load(norm_weights + d);
          const Vec gradient = inverses[row] * (weighed - mean - load(values + d) * pull);
          const Vec dropped = gradient * kept.factors(d);
          store(d_residuals + row * width + d, gradient);
          store(d_products + row * width + d, dropped);
          add(d_biases + d, dropped);
        }
      }
    });
    const auto [d_x, d_weight] = product_gradients(d_product, saved[0], saved[1]);
    const at::Tensor totals = d_parameters.sum(0);
    return {d_x, d_weight, totals[0], d_residual, totals[1], totals[2], {}, {}};
  }

 private:
  static constexpr int64_t kParameters = 3;  ///< bias, weight and bias of the norm

  /// Normalises the row in place to (row − mean) / deviation. Returns 1 / deviation.
  static float normalise(float* row, int64_t width, float epsilon) {
    Vec total = {}, squares = {};
    for (int64_t d = 0; d < width; d += kLanes) total += load(row + d);
    const float mean = sum(total) / static_cast<float>(width);
    for (int64_t d = 0; d < width; d += kLanes) {
      const Vec centred = load(row + d) - mean;
      squares += centred * centred;
    }
    const float inverse = 1.0F / std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
    for (int64_t d = 0; d < width; d += kLanes) store(row + d, (load(row + d) - mean) * inverse);
    return inverse;
  }
};

}  // namespace

bool cpu_rows_fit(const at::Tensor& x, int64_t out) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && out % kLanes == 0 && at::GradMode::is_enabled();
}

at::Tensor linear_gelu_on_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              double dropout_rate) {
  return LinearGelu::apply(x, weight, bias, dropout_rate);
}

at::Tensor linear_normed_sum_on_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& residual, const CpuNorm& norm, double dropout_rate) {
  return LinearNormedSum::apply(x, weight, bias, residual, norm.weight, norm.bias, norm.epsilon,
                                dropout_rate);
}

}  // namespace adtrain::kernels
