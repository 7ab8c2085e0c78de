#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/TokenStreams.h"
#include "kernels/block/BlockTensors.h"
#include "kernels/primitives/DropoutMask.h"

/// A post-norm block with random weights, input and gradient on the GPU, or on the CPU for emulated kernels,
/// and the same in float64 by plain operators, with the same dropout mask: the definition of what is right.
namespace adtrain::testing {

struct FusedBlockCase {
  kernels::BlockShape shape;
  double dropout = 0;
  /// Larger ones let the softmax leave the range in which it needs no maximum.
  double query_and_key_scale = 1;
  /// Sequences begin with padding of any length.
  bool padded = false;
  /// ALiBi's penalty on scores.
  bool alibi = false;
  /// Sequences hold several segments of any length, which do not read each other.
  bool packed = false;

  bool steep() const { return query_and_key_scale != 1; }
};

inline std::string name_of(const FusedBlockCase& tried) {
  const kernels::BlockShape& shape = tried.shape;
  std::string name = "S" + std::to_string(shape.sequences) + "_T" + std::to_string(shape.tokens) + "_R" +
                     std::to_string(shape.rows) + "_D" + std::to_string(shape.width) + "_H" +
                     std::to_string(shape.heads) + (shape.causal ? "_causal" : "_full");
  if (shape.queries > 0) name += "_streams";
  if (shape.queries > 0 && shape.queries < shape.tokens) name += std::to_string(shape.queries);
  if (tried.padded) name += "_padded";
  if (tried.dropout > 0) name += "_dropout";
  if (tried.steep()) name += "_steep";
  if (tried.alibi) name += "_alibi";
  if (tried.packed) name += "_packed";
  return name;
}

/// For a GPU: the sizes of the benchmark and of the quickstart, and what is at the edges of them.
inline std::vector<FusedBlockCase> fused_block_cases() {
  std::vector<FusedBlockCase> all;
  for (const double dropout : {0.0, 0.1}) {
    for (const bool causal : {true, false}) {
      all.push_back({{5, 240, 240, 64, 4, causal}, dropout});
      all.push_back({{300, 80, 80, 32, 4, causal}, dropout});  // more sequences than thread blocks
      all.push_back({{5, 240, 1, 64, 4, causal}, dropout});
      all.push_back({{600, 50, 1, 64, 8, causal}, dropout});  // likewise
      all.push_back({{9, 256, 1, 32, 2, causal}, dropout});
      all.push_back({{3, 256, 256, 64, 4, causal}, dropout});
      all.push_back({{4, 101, 37, 64, 2, causal}, dropout});
      all.push_back({{7, 33, 33, 32, 2, causal}, dropout});
      all.push_back({{2, 256, 17, 32, 1, causal}, dropout});
      all.push_back({{3, 7, 3, 64, 8, causal}, dropout});
      all.push_back({{5, 200, 200, 64, 8, causal}, dropout});
      all.push_back({{4, 101, 5, 64, 4, causal}, dropout});  // all outputs in one warp tile
      all.push_back({{4, 101, 5, 64, 8, causal}, dropout});
      all.push_back({{1, 1, 1, 32, 4, causal}, dropout});
    }
    all.push_back({{300, 164, 164, 64, 4, true}, dropout});  // several tiles of rows a thread block
    all.push_back({{301, 101, 137, 64, 2, true, 101}, dropout});
    all.push_back({{3, 240, 240, 64, 4, true}, dropout, 4.0});

    all.push_back({{5, 240, 480, 64, 4, true, 240}, dropout});
    all.push_back({{5, 240, 240, 64, 4, true, 240}, dropout});
    all.push_back({{300, 80, 160, 32, 4, true, 80}, dropout});
    all.push_back({{300, 80, 80, 32, 4, true, 80}, dropout});
    all.push_back({{3, 256, 512, 64, 4, true, 256}, dropout});
    all.push_back({{4, 101, 1, 64, 2, true, 101}, dropout});
    all.push_back({{4, 101, 137, 64, 2, true, 101}, dropout});
    all.push_back({{4, 101, 106, 64, 4, true, 101}, dropout});
    all.push_back({{5, 150, 210, 64, 4, true, 60}, dropout});
    all.push_back({{7, 33, 66, 32, 2, true, 33}, dropout});
    all.push_back({{2, 256, 17, 32, 1, true, 256}, dropout});
    all.push_back({{3, 250, 500, 64, 8, true, 250}, dropout});
    all.push_back({{3, 7, 3, 64, 8, true, 7}, dropout});
    all.push_back({{1, 1, 2, 32, 4, true, 1}, dropout});
    all.push_back({{3, 240, 480, 64, 4, true, 240}, dropout, 4.0});
  }
  return all;
}

/// Likewise with padding in front, as long as anything or nothing, and with fewer queries than tokens: what
/// compressed context has, and post-norm blocks alone.
inline std::vector<FusedBlockCase> padded_block_cases() {
  std::vector<FusedBlockCase> all;
  for (const double dropout : {0.0, 0.1}) {
    all.push_back({{9, 240, 240, 64, 4, true}, dropout, 1.0, true});
    all.push_back({{300, 164, 164, 32, 4, true}, dropout, 1.0, true});
    all.push_back({{9, 164, 1, 64, 4, true}, dropout, 1.0, true});
    all.push_back({{7, 256, 256, 64, 8, true}, dropout, 1.0, true});
    all.push_back({{7, 101, 37, 64, 2, true}, dropout, 1.0, true});
    all.push_back({{7, 101, 5, 64, 4, true}, dropout, 1.0, true});
    all.push_back({{7, 240, 240, 64, 4, true}, dropout, 4.0, true});
    all.push_back({{7, 244, 365, 64, 4, true, 121}, dropout, 1.0, true});
    all.push_back({{7, 244, 121, 64, 4, true, 121}, dropout, 1.0, true});
    all.push_back({{300, 164, 245, 32, 4, true, 81}, dropout, 1.0, true});
    all.push_back({{7, 164, 1, 64, 8, true, 81}, dropout, 1.0, true});
    all.push_back({{7, 33, 40, 64, 2, true, 16}, dropout, 4.0, true});
    all.push_back({{5, 256, 256, 32, 1, true, 100}, dropout});
  }
  return all;
}

/// The tensors of the contract, in bf16 (statistics fp32, words int32), poisoned with NaN where kernels
/// write.
class FusedBlockData {
 public:
  explicit FusedBlockData(const FusedBlockCase& tried, at::Device device = at::kCUDA)
      : case_(tried), device_(device) {
    const auto& [sequences, tokens, rows, width, heads, causal, queries, no_first] = tried.shape;
    const int64_t inner = tried.shape.inner(), all_rows = tried.shape.all_rows();
    const double deviation = 1 / std::sqrt(static_cast<double>(width));
    in_proj_weight = random({3 * width, width}, deviation);
    in_proj_weight.narrow(0, 0, 2 * width).mul_(tried.query_and_key_scale);
    in_proj_bias = random({3 * width}, 0.2);
    out_proj_weight = random({width, width}, deviation);
    out_proj_bias = random({width}, 0.2);
    norm1_weight = random({width}, 0.2).add_(1);
    norm1_bias = random({width}, 0.2);
    linear1_weight = random({inner, width}, deviation);
    linear1_bias = random({inner}, 0.2);
    linear2_weight = random({width, inner}, deviation / 2);
    linear2_bias = random({width}, 0.2);
    norm2_weight = random({width}, 0.2).add_(1);
    norm2_bias = random({width}, 0.2);
    x = random({sequences, tokens + queries, width}, 1);
    dy = random({sequences, rows, width}, 1);
    if (tried.padded) {
      const int last = tokens - std::max(queries, 1);
      first = at::randint(last + 1, {sequences}, at::device(device).dtype(at::kInt));
      for (int sequence = 0; const int one_of_a_kind : {last, 0, last / 16 * 16, std::max(last - 1, 0)}) {
        if (sequence < sequences) first[sequence++] = one_of_a_kind;
      }
      dy = without_padding(dy);
    }

    if (tried.packed) segments = random_segments(sequences, tokens);

    const kernels::KeepProbability keep(tried.dropout);
    scale = keep.scale();
    attention_dropout_mask = random_words({sequences, heads, (tokens + 31) / 32, rows}, keep.value());
    projection_dropout_mask = random_words({all_rows, width / 32}, keep.value());
    inner_dropout_mask = random_words({all_rows, inner / 32}, keep.value());
    output_dropout_mask = random_words({all_rows, width / 32}, keep.value());

    attention_output = poisoned({sequences, rows, width});
    lse = poisoned({sequences, heads, rows}, at::kFloat);
    normed1 = poisoned({sequences, rows, width});
    inverse1 = poisoned({sequences, rows}, at::kFloat);
    normed2 = poisoned({sequences, rows, width});
    inverse2 = poisoned({sequences, rows}, at::kFloat);
  }

  kernels::BlockWeights weights() const {
    return {of(in_proj_weight), of(in_proj_bias), of(out_proj_weight), of(out_proj_bias),
            of(norm1_weight),   of(norm1_bias),   of(linear1_weight),  of(linear1_bias),
            of(linear2_weight), of(linear2_bias), of(norm2_weight),    of(norm2_bias)};
  }
  kernels::DropoutMasks keep() const {
    if (case_.dropout == 0) return {nullptr, nullptr, nullptr, nullptr, 1.0f, 1.0f};
    return {words(attention_dropout_mask),
            words(projection_dropout_mask),
            words(inner_dropout_mask),
            words(output_dropout_mask),
            scale,
            scale};
  }
  kernels::BlockActivations activations() {
    return {of(x),
            of(attention_output),
            lse.data_ptr<float>(),
            of(normed1),
            inverse1.data_ptr<float>(),
            of(normed2),
            inverse2.data_ptr<float>()};
  }
  const FusedBlockCase& tried() const { return case_; }
  kernels::BlockShape shape() const {
    kernels::BlockShape shape = case_.shape;
    if (case_.padded) shape.first = first.const_data_ptr<int>();
    return shape;
  }
  /// What stands in rows, (S, R, …), with zeros for padding.
  at::Tensor without_padding(const at::Tensor& of_rows) const {
    if (!case_.padded) return of_rows;
    const int length = case_.shape.length(), rows = case_.shape.rows;
    const at::Tensor token = at::arange(length - rows, length, first.options());
    at::Tensor padding = token.unsqueeze(0).lt(first.unsqueeze(1));
    while (padding.dim() < of_rows.dim()) padding = padding.unsqueeze(-1);
    return of_rows.masked_fill(padding, 0);
  }

  at::Tensor poisoned(at::IntArrayRef sizes, at::ScalarType type = at::kBFloat16) const {
    return at::full(sizes, std::numeric_limits<float>::quiet_NaN(), at::device(device_).dtype(type));
  }
  static __nv_bfloat16* of(const at::Tensor& tensor) {
    return static_cast<__nv_bfloat16*>(tensor.data_ptr());
  }

  at::Tensor in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias, norm1_weight, norm1_bias,
      linear1_weight, linear1_bias, linear2_weight, linear2_bias, norm2_weight, norm2_bias;
  at::Tensor x, dy;
  at::Tensor first;  ///< undefined for no padding
  TokenSegments segments;
  at::Tensor attention_dropout_mask, projection_dropout_mask, inner_dropout_mask, output_dropout_mask;
  float scale = 1;
  at::Tensor attention_output, lse, normed1, inverse1, normed2, inverse2;

 private:
  /// Of some sequences few long ones, of others many short ones; a last part in segments of one token.
  TokenSegments random_segments(int64_t sequences, int64_t tokens) const {
    const at::Tensor firsts = at::empty({sequences, tokens}, at::kInt);
    auto* place = firsts.mutable_data_ptr<int>();
    for (int64_t sequence = 0; sequence < sequences; ++sequence) {
      const int64_t padding = sequence % 2 == 0 ? tokens / 8 : 0;
      const double ends = sequence % 3 == 0 ? 0.02 : 0.005;
      const at::Tensor drawn = at::rand({tokens}).lt(ends);
      int begin = 0;
      for (int64_t token = 0; token < tokens; ++token) {
        if (token >= tokens - padding || drawn[token].item<bool>()) begin = static_cast<int>(token);
        *place++ = begin;
      }
    }
    return TokenSegments::of(firsts.to(device_));
  }
  at::Tensor random(at::IntArrayRef sizes, double deviation) const {
    return at::randn(sizes, at::device(device_)).mul_(deviation).to(at::kBFloat16);
  }
  at::Tensor random_words(std::vector<int64_t> sizes, double probability) const {
    sizes.push_back(32);
    const at::Tensor bits = at::rand(sizes, at::device(device_)).lt(probability).to(at::kLong);
    const at::Tensor places = at::arange(32, bits.options());
    return bits.bitwise_left_shift(places).sum(-1).to(at::kInt);
  }
  static const uint32_t* words(const at::Tensor& tensor) {
    return static_cast<const uint32_t*>(tensor.data_ptr());
  }

  FusedBlockCase case_;
  at::Device device_;
};

/// Which tokens (columns) a token does not read: bool (tokens + queries, tokens + queries), or (S, 1, …, …).
inline at::Tensor unread(const FusedBlockData& data) {
  const kernels::BlockShape& shape = data.tried().shape;
  const int64_t tokens = shape.tokens, queries = shape.queries;
  const at::Tensor all = at::ones({tokens, tokens}, at::device(data.x.device()).dtype(at::kBool));
  at::Tensor read = shape.causal ? all.tril() : all;
  if (data.tried().packed) return read.logical_not().logical_or(data.segments.before()).unsqueeze(1);
  if (queries > 0) {
    const at::Tensor none = at::zeros({tokens, queries}, all.options());
    const at::Tensor before = all.tril(-1).narrow(0, tokens - queries, queries);
    const at::Tensor own = at::eye(queries, all.options());
    read = at::cat({at::cat({read, none}, 1), at::cat({before, own}, 1)});
  }
  if (!data.tried().padded) return read.logical_not();
  const at::Tensor key = at::arange(tokens + queries, data.first.options());
  const at::Tensor padding = key.unsqueeze(0).lt(data.first.unsqueeze(1)).unsqueeze(1);
  const at::Tensor others = key.unsqueeze(0).ne(key.unsqueeze(1));
  return read.logical_not().logical_or(padding.logical_and(others)).unsqueeze(1);
}

/// The bits of words: int32 (…, 32).
inline at::Tensor bits_of(const at::Tensor& words) {
  return words.unsqueeze(-1).bitwise_right_shift(at::arange(32, words.options())).bitwise_and(1);
}

/// The scores of queries and keys in `qkv` (3, S, H, tokens + queries, head size), of which the last rows
/// ask: (S, H, R, tokens + queries), −∞ where a token does not read.
inline at::Tensor scores_of(const at::Tensor& qkv, const FusedBlockData& data) {
  const auto& [sequences, tokens, rows, width, heads, causal, queries, no_first] = data.tried().shape;
  at::Tensor scores =
      at::matmul(qkv[0], qkv[1].transpose(2, 3)) / std::sqrt(static_cast<double>(qkv.size(4)));
  if (data.tried().alibi) {
    const at::Tensor context = at::arange(tokens, scores.options().requires_grad(false));
    const at::Tensor place = at::cat({context, context.narrow(0, tokens - queries, queries)});
    const at::Tensor head = at::arange(1, heads + 1, place.options());
    const at::Tensor slope = at::exp2(head * (-8.0 / heads)).view({heads, 1, 1});
    scores = scores - slope * (place.unsqueeze(1) - place.unsqueeze(0));
  }
  scores = scores.masked_fill(unread(data), -std::numeric_limits<double>::infinity());
  return scores.narrow(2, tokens + queries - rows, rows);
}

/// Queries, keys and values `qkv` (3, S, H, tokens + queries, head size), of which the last rows ask -> what
/// they read (S, R, D), and log2 of their sums of exponentials, as in BlockActivations.
inline at::Tensor attention_of(const at::Tensor& qkv, const FusedBlockData& data, at::Tensor& lse) {
  const auto& [sequences, tokens, rows, width, heads, causal, queries, no_first] = data.tried().shape;
  const at::Tensor scores = scores_of(qkv, data);
  lse = scores.logsumexp(-1) / std::log(2.0);
  at::Tensor weights = at::softmax(scores, -1);
  if (data.tried().dropout > 0) {  // (S, H, words, R) -> (S, H, R, tokens)
    at::Tensor bits = bits_of(data.attention_dropout_mask.transpose(2, 3)).flatten(-2);
    bits = bits.narrow(-1, 0, tokens).to(at::kDouble);
    if (queries > 0) bits = at::cat({bits, bits.narrow(-1, tokens - queries, queries)}, -1);
    weights = weights * bits * static_cast<double>(data.scale);
  }
  return at::matmul(weights, qkv[2]).transpose(1, 2).flatten(2);
}

/// Everything in float64. The forward pass runs when it is made.
class FusedBlockReference {
 public:
  explicit FusedBlockReference(const FusedBlockData& data) {
    const auto& [sequences, tokens, rows, width, heads, causal, queries, no_first] = data.tried().shape;
    const int64_t head_size = width / heads;
    const bool drops = data.tried().dropout > 0;
    for (const at::Tensor* parameter :
         {&data.in_proj_weight, &data.in_proj_bias, &data.out_proj_weight, &data.out_proj_bias,
          &data.norm1_weight, &data.norm1_bias, &data.linear1_weight, &data.linear1_bias,
          &data.linear2_weight, &data.linear2_bias, &data.norm2_weight, &data.norm2_bias}) {
      parameters.push_back(parameter->to(at::kDouble).requires_grad_());
    }
    x = data.x.to(at::kDouble).requires_grad_();
    const auto dropped = [&](const at::Tensor& values, const at::Tensor& words) {
      if (!drops) return values;
      return values * bits_of(words).to(at::kDouble).view(values.sizes()) * static_cast<double>(data.scale);
    };

    const int64_t length = tokens + queries;
    const at::Tensor qkv = at::linear(x, parameters[0], parameters[1])
                               .view({sequences, length, 3, heads, head_size})
                               .permute({2, 0, 3, 1, 4});
    attention_output = attention_of(qkv, data, lse);
    const at::Tensor sum1 =
        x.narrow(1, length - rows, rows) +
        dropped(at::linear(attention_output, parameters[2], parameters[3]), data.projection_dropout_mask);
    normed1 = normed(sum1, inverse1);
    x1 = normed1 * parameters[4] + parameters[5];
    const at::Tensor inner =
        dropped(at::gelu(at::linear(x1, parameters[6], parameters[7])), data.inner_dropout_mask);
    const at::Tensor sum2 =
        x1 + dropped(at::linear(inner, parameters[8], parameters[9]), data.output_dropout_mask);
    normed2 = normed(sum2, inverse2);
    y = normed2 * parameters[10] + parameters[11];
  }

  /// Gradients for `dy` of x1, of x, then of the parameters in order.
  std::vector<at::Tensor> backward(const at::Tensor& dy) const {
    torch::autograd::variable_list inputs = {x1, x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    return torch::autograd::grad({y}, inputs, {dy.to(at::kDouble)});
  }

  std::vector<at::Tensor> parameters;
  at::Tensor x, lse, attention_output, normed1, inverse1, x1, normed2, inverse2, y;

 private:
  static at::Tensor normed(const at::Tensor& sum, at::Tensor& inverse) {
    const at::Tensor centred = sum - sum.mean(-1, true);
    const at::Tensor of_row = at::rsqrt(centred.square().mean(-1, true) + 1e-5);
    inverse = of_row.squeeze(-1);
    return centred * of_row;
  }
};

/// ‖found − expected‖ / ‖expected‖.
inline double error_of(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor right = expected.detach().to(at::kDouble).flatten();
  return ((found.to(at::kDouble).flatten() - right).norm() / right.norm().clamp_min(1e-12)).item<double>();
}

}  // namespace adtrain::testing
