#include "kernels/cpu/CpuElementwise.h"

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

constexpr int64_t kChunk = 256;  ///< rows, or vectors, per task of a thread

Vec sigmoid(const Vec& x) {
  return 1.0F / (1.0F + exp(-x));
}

template <class Work>
void for_each_vector(int64_t count, Work work) {
  at::parallel_for(0, count / kLanes, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kLanes; i < end * kLanes; i += kLanes) work(i);
  });
}

class SiluProduct : public autograd::Function<SiluProduct> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor out = at::empty_like(a);
    const auto* as = a.const_data_ptr<float>();
    const auto* bs = b.const_data_ptr<float>();
    auto* outs = out.data_ptr<float>();
    for_each_vector(a.numel(), [=](int64_t i) {
      const Vec x = load(as + i);
      store(outs + i, x * sigmoid(x) * load(bs + i));
    });
    context->save_for_backward({a, b});
    return out;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor d_a = at::empty_like(saved[0]);
    const at::Tensor d_b = at::empty_like(saved[1]);
    const auto* as = saved[0].const_data_ptr<float>();
    const auto* bs = saved[1].const_data_ptr<float>();
    const auto* d_outs = d_out.const_data_ptr<float>();
    auto* d_as = d_a.data_ptr<float>();
    auto* d_bs = d_b.data_ptr<float>();
    for_each_vector(d_out.numel(), [=](int64_t i) {
      const Vec x = load(as + i);
      const Vec s = sigmoid(x);
      const Vec d = load(d_outs + i);
      store(d_as + i, d * load(bs + i) * s * (1.0F + x * (1.0F - s)));
      store(d_bs + i, d * x * s);
    });
    return {d_a, d_b};
  }
};

/// to[d] = from[d] after dropout; `from` and `to` may be the same.
void drop(const float* from, const CpuDropout::Row& kept, int64_t width, float* to) {
  for (int64_t d = 0; d < width; d += kLanes) store(to + d, load(from + d) * kept.factors(d));
}

at::Tensor dropped(const at::Tensor& x, const CpuDropout& dropout) {
  const at::Tensor out = at::empty_like(x);
  const int64_t width = x.size(-1);
  const auto* xs = x.const_data_ptr<float>();
  auto* outs = out.data_ptr<float>();
  at::parallel_for(0, x.numel() / width, kChunk, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      drop(xs + row * width, dropout.row(row), width, outs + row * width);
  });
  return out;
}

class Dropout : public autograd::Function<Dropout> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, double rate) {
    const CpuDropout dropout = CpuDropout::drawn(rate, x.size(0), x.numel() / x.size(-1));
    dropout.save(context->saved_data);
    return dropped(x, dropout);
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    return {dropped(gradients[0].contiguous(), CpuDropout::saved(context->saved_data)), {}};
  }
};

/// What x is multiplied by, of its shape and type: for those that the function above is not for.
at::Tensor dropout_factors(const at::Tensor& x, double rate) {
  const int64_t width = x.size(-1), rows = x.numel() / width, whole = width / kLanes * kLanes;
  const CpuDropout dropout = CpuDropout::drawn(rate, x.size(0), rows);
  const at::Tensor factors = at::empty(x.sizes(), x.options().dtype(at::kFloat).requires_grad(false));
  auto* values = factors.data_ptr<float>();
  at::parallel_for(0, rows, kChunk, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const CpuDropout::Row kept = dropout.row(row);
      float* of_row = values + row * width;
      for (int64_t d = 0; d < whole; d += kLanes) store(of_row + d, kept.factors(d));
      for (int64_t d = whole; d < width; ++d) of_row[d] = kept.factor(d);
    }
  });
  return factors.to(x.scalar_type());
}

float inverse_rms(const float* row, int64_t width, float epsilon) {
  return 1.0F / std::sqrt(dot(row, row, width) / static_cast<float>(width) + epsilon);
}

class RmsNormOnCpu : public autograd::Function<RmsNormOnCpu> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double epsilon, double dropout_rate) {
    const int64_t width = x.size(-1);
    const CpuDropout dropout = CpuDropout::drawn(dropout_rate, x.size(0), x.numel() / width);
    const at::Tensor out = at::empty_like(x);
    const auto* xs = x.const_data_ptr<float>();
    const auto* weights = weight.const_data_ptr<float>();
    auto* outs = out.data_ptr<float>();
    at::parallel_for(0, x.numel() / width, kChunk, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        float* out_row = outs + row * width;
        drop(xs + row * width, dropout.row(row), width, out_row);
        const float inverse = inverse_rms(out_row, width, static_cast<float>(epsilon));
        for (int64_t d = 0; d < width; d += kLanes) {
          store(out_row + d, load(out_row + d) * inverse * load(weights + d));
        }
      }
    });
    context->save_for_backward({x, weight});
    context->saved_data["epsilon"] = epsilon;
    dropout.save(context->saved_data);
    return out;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor d_out = gradients[0].contiguous();
    const at::Tensor d_x = at::empty_like(saved[0]);
    const int64_t width = d_x.size(-1);
    const int64_t rows = d_x.numel() / width;
    const int64_t chunks = (rows + kChunk - 1) / kChunk;
    // One sum per chunk, added afterwards, so that the result does not depend on the number of threads.
    const at::Tensor d_weight = at::zeros({chunks, width}, d_x.options());
    const auto epsilon = static_cast<float>(context->saved_data["epsilon"].toDouble());
    const CpuDropout dropout = CpuDropout::saved(context->saved_data);
    const auto* xs = saved[0].const_data_ptr<float>();
    const auto* weights = saved[1].const_data_ptr<float>();
    const auto* d_outs = d_out.const_data_ptr<float>();
    auto* d_xs = d_x.data_ptr<float>();
    auto* d_weights = d_weight.data_ptr<float>();
    at::parallel_for(0, chunks, 1, [=](int64_t begin, int64_t end) {
      for (int64_t row = begin * kChunk; row < std::min(rows, end * kChunk); ++row) {
        float* d_row = d_xs + row * width;
        drop(xs + row * width, dropout.row(row), width, d_row);
        backward_row(weights, d_outs + row * width, width, epsilon, d_row, d_weights + row / kChunk * width);
        drop(d_row, dropout.row(row), width, d_row);
      }
    });
    return {d_x, d_weight.sum(0), {}, {}};
  }

 private:
  /// Replaces `x`, the row after dropout, by its gradient.
  static void backward_row(const float* weight, const float* d_out, int64_t width, float epsilon, float* x,
                           float* d_weight) {
    const float inverse = inverse_rms(x, width, epsilon);
    Vec along = {};
    for (int64_t d = 0; d < width; d += kLanes) along += load(d_out + d) * load(weight + d) * load(x + d);
    const float pull = sum(along) * inverse * inverse / static_cast<float>(width);
    for (int64_t d = 0; d < width; d += kLanes) {
      const Vec value = load(x + d);
      const Vec gradient = load(d_out + d);
      store(x + d, inverse * (gradient * load(weight + d) - value * pull));
      store(d_weight + d, load(d_weight + d) + gradient * value * inverse);
    }
  }
};

}  // namespace

bool cpu_elementwise_fits(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous() && x.size(-1) % kLanes == 0;
}

at::Tensor silu_product_on_cpu(const at::Tensor& a, const at::Tensor& b) {
  return SiluProduct::apply(a, b);
}

at::Tensor dropout_on_cpu(const at::Tensor& x, double rate) {
  return cpu_elementwise_fits(x) ? Dropout::apply(x, rate) : x * dropout_factors(x, rate);
}

at::Tensor rms_norm_on_cpu(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                           double dropout_rate) {
  return RmsNormOnCpu::apply(x, weight, epsilon, dropout_rate);
}

}  // namespace adtrain::kernels
