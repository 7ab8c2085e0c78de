// The fused CPU forms against the same mathematics in torch's operators.

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <ATen/Utils.h>
#include <gtest/gtest.h>

#include "kernels/DropoutDraw.h"
#include "kernels/cpu/CpuAttention.h"
#include "kernels/cpu/CpuDropout.h"
#include "kernels/cpu/CpuElementwise.h"
#include "kernels/cpu/CpuRows.h"
#include "kernels/cpu/Vec.h"
#include "kernels/dropout/Dropout.h"
#include "model/RandomBatch.h"

namespace adtrain {
namespace {

using testing::relative_error;

TEST(CpuKernels, ExpIsAccurateOverItsWholeRange) {
  for (float x = -86.9F; x < 87.9F; x += 0.0137F) {
    const float found = kernels::exp(kernels::Vec{} + x)[0];
    ASSERT_NEAR(found / std::exp(static_cast<double>(x)), 1.0, 4e-7) << x;
  }
  EXPECT_EQ(kernels::exp(kernels::Vec{} - std::numeric_limits<float>::infinity())[0], 0.0F);
  EXPECT_TRUE(std::isnan(kernels::exp(kernels::Vec{} + std::numeric_limits<float>::quiet_NaN())[0]));
}

/// Output and input gradients of `f` under a random weighting of its output.
template <class F>
std::vector<at::Tensor> with_gradients(F f, const std::vector<at::Tensor>& inputs,
                                       const at::Tensor& weighting) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(input.detach().clone().set_requires_grad(true));
  std::vector<at::Tensor> results = {f(leaves)};
  (results[0] * weighting).sum().backward();
  for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
  return results;
}

void expect_alike(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LT(relative_error(found[i], expected[i]), 3e-6) << "result " << i;
}

/// What CpuDropout multiplies a matrix of this shape with, rows of the last dimension counted on.
at::Tensor factors_of(const kernels::CpuDropout& dropout, at::IntArrayRef shape) {
  const int64_t width = shape.back();
  const int64_t padded = (width + kernels::kLanes - 1) / kernels::kLanes * kernels::kLanes;
  const at::Tensor rows = at::empty({c10::multiply_integers(shape) / width, padded});
  for (int64_t row = 0; row < rows.size(0); ++row) {
    for (int64_t column = 0; column < padded; column += kernels::kLanes) {
      kernels::store(rows[row].data_ptr<float>() + column, dropout.row(row).factors(column));
    }
  }
  return rows.narrow(1, 0, width).reshape(shape);
}

/// The factors of the next call that drops, of a tensor of this shape: (sequences, …, columns).
at::Tensor next_factors(double rate, at::IntArrayRef shape) {
  const auto seed = static_cast<uint64_t>(at::randint(1 << 30, {}, at::kLong).item<int64_t>());
  at::manual_seed(seed);
  const int64_t rows = c10::multiply_integers(shape) / shape.back();
  const kernels::CpuDropout dropout = kernels::CpuDropout::drawn(rate, shape.front(), rows);
  at::manual_seed(seed);
  return factors_of(dropout, shape);
}

TEST(CpuKernels, DropoutKeepsItsShareAndTheMean) {
  for (const double rate : {0.0, 0.1, 0.5, 1.0}) {
    const at::Tensor factors = next_factors(rate, {1000, 512});
    const double deviation = std::sqrt(rate * (1 - rate) / static_cast<double>(factors.numel()));
    EXPECT_NEAR(factors.eq(0).to(at::kDouble).mean().item<double>(), rate, 5 * deviation) << rate;
    const auto largest = static_cast<float>(rate < 1 ? 1 / (1 - rate) : 0);
    EXPECT_FLOAT_EQ(factors.max().item<float>(), largest) << rate;
  }
}

TEST(CpuKernels, DropoutOfNeighboursIsIndependent) {
  const at::Tensor dropped = next_factors(0.5, {100, 20, 256}).flatten(0, 1).eq(0).to(at::kDouble);
  const at::Tensor signs = dropped * 2 - 1;
  const auto expect_no_correlation = [](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_LT(std::abs((a * b).mean().item<double>()), 5 / std::sqrt(static_cast<double>(a.numel())));
  };
  for (const int64_t apart : {1, 2, 7, 8, 64}) {
    SCOPED_TRACE(apart);
    for (const int64_t dimension : {0, 1}) {
      const int64_t count = signs.size(dimension) - apart;
      expect_no_correlation(signs.narrow(dimension, 0, count), signs.narrow(dimension, apart, count));
    }
  }
}

struct Case {
  int64_t context, queries, rows, heads, size;
  bool rotary;
};

TEST(CpuKernels, AttentionIsThatOfTorchsOperators) {
  const Case cases[] = {{1, 1, 1, 1, 8, true},    {7, 7, 14, 2, 16, true},   {7, 7, 7, 2, 16, true},
                        {33, 0, 33, 3, 8, false}, {20, 0, 1, 2, 24, true},   {13, 5, 18, 1, 32, false},
                        {13, 5, 5, 2, 8, true},   {80, 80, 160, 2, 16, true}};
  for (const Case& each : cases) {
    SCOPED_TRACE(::testing::Message() << each.context << " " << each.queries << " " << each.rows);
    const int64_t tokens = each.context + each.queries;
    const at::Tensor fused = at::randn({2, tokens, 3 * each.heads * each.size});
    const at::Tensor weighting = at::randn({2, each.rows, each.heads * each.size});
    const TokenStreams streams = {.context = each.context, .queries = each.queries};
    // The kernel leaves rows alone that may have padding.
    TokenStreams by_operators = streams;
    by_operators.first = at::zeros({2}, at::kInt);
    by_operators = by_operators.with_masks(fused);
    const Rotary rotary =
        each.rotary ? Rotary::of(at::randint(50, {tokens}, at::kLong), each.size) : Rotary{};
    const auto attend_with = [&](const TokenStreams& how) {
      return [&](const std::vector<at::Tensor>& leaves) {
        const at::Tensor qkv = leaves[0].view({2, tokens, each.heads, 3, each.size}).permute({3, 0, 2, 1, 4});
        EXPECT_EQ(kernels::cpu_attention_fits(qkv, how), &how == &streams);
        return attend(qkv, each.rows, how, rotary, 0);
      };
    };
    expect_alike(with_gradients(attend_with(streams), {fused}, weighting),
                 with_gradients(attend_with(by_operators), {fused}, weighting));
  }
}

TEST(CpuKernels, AttentionDropsWeightsAsTorchsOperatorsWouldWithTheSameMask) {
  for (const Case& each :
       {Case{33, 0, 33, 3, 16, false}, Case{20, 0, 1, 2, 24, true}, Case{13, 5, 18, 1, 8, false},
        Case{31, 31, 62, 2, 32, true}, Case{31, 31, 31, 2, 16, false}}) {
    SCOPED_TRACE(::testing::Message() << each.context << " " << each.queries << " " << each.rows);
    const int64_t tokens = each.context + each.queries;
    const at::Tensor qkv = at::randn({3, 2, each.heads, tokens, each.size});
    const at::Tensor weighting = at::randn({2, each.rows, each.heads * each.size});
    const TokenStreams streams =
        TokenStreams{.context = each.context, .queries = each.queries}.with_masks(qkv);
    const at::Tensor factors = next_factors(0.3, {2, each.heads, each.rows, each.context});
    const auto fused = [&](const std::vector<at::Tensor>& leaves) {
      return kernels::attend_on_cpu(leaves[0], each.rows, streams, {}, 0.3);
    };
    // Over all tokens as keys; a query's own decision stands where the context token stands that it replaces.
    const auto operators = [&](const std::vector<at::Tensor>& leaves) {
      at::Tensor read = at::full({tokens, tokens}, -std::numeric_limits<float>::infinity());
      at::Tensor over_all = at::zeros({2, each.heads, each.rows, tokens});
      over_all.narrow(3, 0, each.context).copy_(factors);
      for (int64_t token = 0; token < tokens; ++token) {
        const int64_t slot = token < each.context ? token : token - each.queries;
        read[token].narrow(0, 0, slot).fill_(0);
        read[token][token].fill_(0);
        const int64_t row = token - (tokens - each.rows);
        if (row >= 0) over_all.select(2, row).select(2, token).copy_(factors.select(2, row).select(2, slot));
      }
      const at::Tensor queries = last_of(leaves[0][0], 2, each.rows);
      const at::Tensor scores =
          at::matmul(queries, leaves[0][1].transpose(2, 3)) / std::sqrt(static_cast<double>(each.size));
      const at::Tensor weights = at::softmax(scores + last_of(read, 0, each.rows), -1) * over_all;
      return at::matmul(weights, leaves[0][2]).transpose(1, 2).flatten(2);
    };
    expect_alike(with_gradients(fused, {qkv}, weighting), with_gradients(operators, {qkv}, weighting));
  }
}

TEST(CpuKernels, DroppedAttentionIsAFunctionOfTheSeedAlone) {
  const at::Tensor qkv = at::randn({3, 3, 2, 50, 16});
  const at::Tensor weighting = at::randn({3, 50, 32});
  const TokenStreams streams = {.context = 50};
  const auto attended = [&](uint64_t seed, int threads) {
    at::manual_seed(seed);
    at::set_num_threads(threads);
    return with_gradients([&](const auto& x) { return kernels::attend_on_cpu(x[0], 50, streams, {}, 0.2); },
                          {qkv}, weighting);
  };
  const int threads = at::get_num_threads();
  const std::vector<at::Tensor> expected = attended(5, 1), found = attended(5, 3), other = attended(6, 1);
  at::set_num_threads(threads);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i])) << "result " << i;
    EXPECT_FALSE(other[i].equal(expected[i])) << "result " << i;
  }
}

TEST(CpuKernels, LargeScoresDoNotOverflow) {
  const at::Tensor qkv = at::randn({3, 1, 1, 12, 8}) * 100;
  const TokenStreams streams = {.context = 6, .queries = 6};
  EXPECT_TRUE(attend(qkv, 12, streams, {}, 0).isfinite().all().item<bool>());
}

TEST(CpuKernels, SiluProductIsThatOfTorchsOperators) {
  const at::Tensor a = at::randn({3, 5, 24}) * 4;
  const at::Tensor b = at::randn({3, 5, 24});
  const at::Tensor weighting = at::randn({3, 5, 24});
  ASSERT_TRUE(kernels::cpu_elementwise_fits(a));
  const auto fused = [](const std::vector<at::Tensor>& x) {
    return kernels::silu_product_on_cpu(x[0], x[1]);
  };
  const auto operators = [](const std::vector<at::Tensor>& x) { return at::silu(x[0]) * x[1]; };
  expect_alike(with_gradients(fused, {a, b}, weighting), with_gradients(operators, {a, b}, weighting));
}

TEST(CpuKernels, RmsNormIsThatOfTorchsOperators) {
  const at::Tensor x = at::randn({7, 100, 16});
  const at::Tensor weight = at::randn({16});
  const at::Tensor weighting = at::randn({7, 100, 16});
  for (const double rate : {0.0, 0.3}) {
    const at::Tensor factors = next_factors(rate, x.sizes());
    const auto fused = [&](const std::vector<at::Tensor>& v) {
      return kernels::rms_norm_on_cpu(v[0], v[1], 1e-5, rate);
    };
    const auto operators = [&](const std::vector<at::Tensor>& v) {
      const at::Tensor kept = v[0] * factors;
      return kept * (kept.square().mean(-1, true) + 1e-5).rsqrt() * v[1];
    };
    expect_alike(with_gradients(fused, {x, weight}, weighting),
                 with_gradients(operators, {x, weight}, weighting));
  }
}

/// Also of widths and strides that are not vectorised.
TEST(CpuKernels, DropoutAloneIsThatOfTheMask) {
  for (const int64_t width : {24, 13}) {
    const at::Tensor x = at::randn({5, 70, width});
    const at::Tensor weighting = at::randn({5, 70, width});
    const at::Tensor factors = next_factors(0.2, x.sizes());
    const at::Tensor transposed = x.transpose(1, 2).contiguous();
    expect_alike(with_gradients([](const auto& v) { return kernels::dropout(v[0], 0.2); }, {x}, weighting),
                 with_gradients([&](const auto& v) { return v[0] * factors; }, {x}, weighting));
    const at::Tensor again = next_factors(0.2, x.sizes());
    expect_alike(
        with_gradients([](const auto& v) { return kernels::dropout(v[0].transpose(1, 2), 0.2); },
                       {transposed}, weighting),
        with_gradients([&](const auto& v) { return v[0].transpose(1, 2) * again; }, {transposed}, weighting));
  }
}

/// However the global batch is divided, and in whatever order its sequences lie.
TEST(CpuKernels, MasksFollowTheSequenceAlone) {
  const at::Tensor seed = at::randint(1 << 30, {1}, at::kLong), whole = at::arange(20, 27, at::kLong);
  SCOPED_TRACE(seed.item<int64_t>());
  constexpr double kRate = 0.3;
  const at::Tensor weight = at::randn({40, 24}), square = at::randn({24, 24}), bias = at::randn({40}),
                   vector = at::randn({24});
  const TokenStreams streams = {.context = 9, .queries = 5};
  using Operation = std::function<at::Tensor(const at::Tensor&)>;
  const auto qkv_of = [](const at::Tensor& x) {  // (3, B, 1 head, 14 tokens, 8)
    return x.unflatten(2, {3, 1, 8}).permute({2, 0, 3, 1, 4});
  };
  const std::vector<Operation> operations = {
      [](const at::Tensor& x) { return kernels::dropout(x, kRate); },
      [](const at::Tensor& x) { return kernels::dropout(x.narrow(2, 0, 13), kRate); },
      [](const at::Tensor& x) { return kernels::dropout(x.to(at::kBFloat16), kRate).to(at::kFloat); },
      [&](const at::Tensor& x) { return kernels::rms_norm_on_cpu(x, vector, 1e-5, kRate); },
      [&](const at::Tensor& x) { return kernels::linear_gelu_on_cpu(x, weight, bias, kRate); },
      [&](const at::Tensor& x) {
        return kernels::linear_normed_sum_on_cpu(x, square, vector, x, {vector, vector, 1e-5}, kRate);
      },
      [&](const at::Tensor& x) { return kernels::attend_on_cpu(qkv_of(x), 14, streams, {}, kRate); },
      [&](const at::Tensor& x) {  // by plain operators, as with padding
        TokenStreams padded = streams;
        padded.first = at::zeros({x.size(0)}, at::kInt);
        return attend(qkv_of(x), 14, padded.with_masks(x), {}, kRate);
      },
      [&](const at::Tensor& x) {
        return attend_with_scores(qkv_of(x), 14, alibi_scores(1, streams, x), kRate);
      }};
  const at::Tensor x = at::randn({7, 14, 24});
  for (size_t k = 0; k < operations.size(); ++k) {
    SCOPED_TRACE(k);
    const auto run = [&](const at::Tensor& places) {
      kernels::DropoutStream stream = {seed, whole.index_select(0, places), 3};
      const kernels::DropoutScope scope(stream);
      const at::Tensor part = x.index_select(0, places);
      const at::Tensor weighting = at::ones_like(operations[k](part).detach());
      stream.next = 3;
      return with_gradients([&](const auto& leaves) { return operations[k](leaves[0]); }, {part},
                            weighting * at::linspace(1, 2, weighting.size(-1)));
    };
    const std::vector<at::Tensor> expected = run(at::arange(7, at::kLong));
    for (const at::Tensor& places : {at::tensor({0, 1, 2}, at::kLong), at::tensor({3, 4, 5, 6}, at::kLong),
                                     at::tensor({6, 2}, at::kLong)}) {
      const std::vector<at::Tensor> found = run(places);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_LT(relative_error(found[i], expected[i].index_select(0, places)), 1e-5) << "result " << i;
    }
    EXPECT_GT(relative_error(expected[0], with_gradients([&](const auto& v) { return operations[k](v[0]); },
                                                         {x}, at::ones_like(expected[0]))[0]),
              1e-3)
        << "other seeds, other masks";
  }
}

TEST(CpuKernels, AStreamIsOfItsSequencesAlone) {
  kernels::DropoutStream stream = {at::ones({1}, at::kLong), at::arange(3, at::kLong)};
  const kernels::DropoutScope scope(stream);
  EXPECT_THROW(kernels::dropout(at::randn({4, 8}), 0.1), std::logic_error);
  EXPECT_NO_THROW(kernels::dropout(at::randn({4, 8}), 0)) << "draws nothing";
}

TEST(CpuKernels, LinearGeluIsThatOfTorchsOperators) {
  const at::Tensor x = at::randn({3, 67, 24}) * 2;
  const at::Tensor weight = at::randn({40, 24}), bias = at::randn({40});
  const at::Tensor weighting = at::randn({3, 67, 40});
  ASSERT_TRUE(kernels::cpu_rows_fit(x, 40));
  for (const double rate : {0.0, 0.3}) {
    const at::Tensor factors = next_factors(rate, weighting.sizes());
    const auto fused = [&](const auto& v) { return kernels::linear_gelu_on_cpu(v[0], v[1], v[2], rate); };
    const auto operators = [&](const auto& v) { return at::gelu(at::linear(v[0], v[1], v[2])) * factors; };
    expect_alike(with_gradients(fused, {x, weight, bias}, weighting),
                 with_gradients(operators, {x, weight, bias}, weighting));
  }
}

TEST(CpuKernels, LinearNormedSumIsThatOfTorchsOperators) {
  const at::Tensor x = at::randn({3, 67, 40});
  const at::Tensor residual = at::randn({3, 80, 24});  // read from its row 13 on: not contiguous
  const std::vector<at::Tensor> inputs = {x,        at::randn({24, 40}), at::randn({24}),
                                          residual, at::randn({24}),     at::randn({24})};
  const at::Tensor weighting = at::randn({3, 67, 24});
  for (const double rate : {0.0, 0.3}) {
    const at::Tensor factors = next_factors(rate, weighting.sizes());
    const auto fused = [&](const auto& v) {
      return kernels::linear_normed_sum_on_cpu(v[0], v[1], v[2], last_of(v[3], 1, 67), {v[4], v[5], 1e-5},
                                               rate);
    };
    const auto operators = [&](const auto& v) {
      const at::Tensor sum = last_of(v[3], 1, 67) + at::linear(v[0], v[1], v[2]) * factors;
      return at::layer_norm(sum, {24}, v[4], v[5], 1e-5);
    };
    expect_alike(with_gradients(fused, inputs, weighting), with_gradients(operators, inputs, weighting));
  }
}

}  // namespace
}  // namespace adtrain
