#pragma once

#include <algorithm>
#include <climits>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/FusedBlockCase.h"
#include "kernels/FusedBlockChecks.h"
#include "kernels/MultiheadAttentionCases.h"
#include "kernels/PlannedAttention.h"
#include "kernels/PreNormChecks.h"
#include "kernels/attention/MultiheadAttention.h"
#include "kernels/attention/ProjectedAttention.h"
#include "kernels/attention/streaming/StreamingAttention.h"

/// The kernels of attention by itself, twice, and as blocks have them, against float64: on a GPU, or emulated
/// on the CPU.
namespace adtrain::testing {

/// Random projections and a gradient of what is read.
class MultiheadAttentionData {
 public:
  MultiheadAttentionData(const MultiheadAttentionCase& tried, at::Device device)
      : block(tried.block, device), lying_(tried.lying) {
    const int64_t sequences = shape().sequences, length = shape().length(), rows = shape().rows,
                  width = shape().width;
    const at::Tensor random = at::randn({sequences, length, 3 * width}, at::device(device));
    projected_ = random.to(tried.type);
    FusedBlockData& data = block.block;
    data.x = data.x.to(tried.type);
    data.attention_output = data.attention_output.to(tried.type);
    data.dy = data.dy.to(at::kFloat).mul_(tried.gradient).to(tried.type);  // padding has none
    minus_deltas_ = at::full_like(block.block.lse, NAN);
    longest_rows_ = block.block.poisoned({2, sequences, shape().heads}, at::kFloat);
    from_queries_ = block.block.poisoned({2, sequences, shape().tokens, width}, tried.type);
    by_kind(projected_).narrow(2, 0, 2).mul_(tried.block.query_and_key_scale);
    by_kind(projected_).select(2, 2).narrow(1, shape().tokens, shape().queries).mul_(tried.own_values);
    queries_apart_ =
        by_kind(projected_).select(2, 0).narrow(1, length - rows, rows).reshape({sequences, rows, width});
    if (tried.block.alibi) {
      longest_keys_ = block.block.poisoned({sequences, shape().heads}, at::kFloat);
      // What is not written must not be read: such a key is none.
      first_keys_ = at::full({sequences, shape().heads, kernels::AlibiReach::blocks(shape().tokens)}, INT_MIN,
                             at::device(device).dtype(at::kInt));
    }
    // There a query has a token before its position that is no padding.
    if (tried.block.padded && shape().queries > 0 && attention().is_streaming())
      data.first.clamp_max_(shape().tokens - shape().queries - 1);
  }

  /// Queries of the last rows, keys and values (S, rows, H, head size), views of `all` (S, tokens + queries,
  /// 3 D) or, where queries lie apart, of these and the last 2 D columns.
  struct Views {
    at::Tensor queries, keys, values;
  };
  Views views(const at::Tensor& all, const at::Tensor& apart) const {
    const at::Tensor kinds = by_kind(all);
    const at::Tensor queries = lying_ == Lying::kApart
                                   ? apart.view({shape().sequences, shape().rows, shape().heads, -1})
                                   : kinds.select(2, 0).narrow(1, rows_before(), shape().rows);
    return {queries, kinds.select(2, 1), kinds.select(2, 2)};
  }

  kernels::MultiheadAttention attention() const {
    const Views from = views(projected_, queries_apart_);
    const kernels::DropoutMasks keep = block.block.keep();
    const bool has_rope = lying_ == Lying::kWithRope;
    return {shape(),
            matrix<const __nv_bfloat16>(from.queries),
            matrix<const __nv_bfloat16>(from.keys),
            matrix<const __nv_bfloat16>(from.values),
            has_rope ? block.cosines.data_ptr<float>() : nullptr,
            has_rope ? block.sines.data_ptr<float>() : nullptr,
            keep.attention,
            keep.attention_scale,
            FusedBlockData::of(block.block.attention_output),
            block.block.lse.data_ptr<float>(),
            first_keys_.defined()
                ? kernels::AlibiReach{longest_keys_.data_ptr<float>(), first_keys_.data_ptr<int>()}
                : kernels::AlibiReach{},
            projected_.scalar_type() == at::kHalf ? kernels::ShortType::kHalf : kernels::ShortType::kBFloat16,
            block.block.segments.defined()
                ? kernels::PackedSegments{block.block.segments.first.const_data_ptr<int>(),
                                          block.block.segments.end.const_data_ptr<int>()}
                : kernels::PackedSegments{}};
  }
  kernels::MultiheadAttentionGradients gradients(const at::Tensor& all, const at::Tensor& apart) const {
    const Views to = views(all, apart);
    return {FusedBlockData::of(block.block.dy),
            matrix<__nv_bfloat16>(to.queries),
            matrix<__nv_bfloat16>(to.keys),
            matrix<__nv_bfloat16>(to.values),
            lying_ == Lying::kApart ? 0 : static_cast<int>(rows_before()),
            minus_deltas_.data_ptr<float>(),
            longest_rows_.data_ptr<float>(),
            /*column_parts=*/nullptr,
            FusedBlockData::of(from_queries_)};
  }

  /// (3, S, H, tokens + queries, head size) in float64, turned: what attention_of() takes.
  at::Tensor exact_heads(const at::Tensor& exact) const {
    if (lying_ == Lying::kWithRope) return PreNormAttentionReference::rotated_by_heads(exact, block);
    return by_kind(exact).permute({2, 0, 3, 1, 4});
  }

  kernels::BlockShape shape() const { return block.block.shape(); }
  const at::Tensor& projected() const { return projected_; }
  const at::Tensor& queries_apart() const { return queries_apart_; }
  Lying lying() const { return lying_; }
  const at::Tensor& first_keys() const { return first_keys_; }
  int64_t rows_before() const { return shape().length() - shape().rows; }

  /// (S, rows, 3 D) -> (S, rows, 3, H, head size).
  at::Tensor by_kind(const at::Tensor& all) const {
    if (lying_ != Lying::kWithRope) return all.unflatten(-1, {3, shape().heads, -1});
    return all.unflatten(-1, {shape().heads, 3, -1}).transpose(2, 3);
  }

  PreNormAttentionData block;

 private:
  template <class Value>
  static kernels::HeadMatrix<Value> matrix(const at::Tensor& view) {
    return {FusedBlockData::of(view), view.stride(0), static_cast<int>(view.stride(1)),
            static_cast<int>(view.stride(2))};
  }

  Lying lying_;
  at::Tensor projected_, queries_apart_, minus_deltas_, longest_rows_, from_queries_;
  at::Tensor longest_keys_, first_keys_;  ///< undefined without ALiBi
};

/// `scale`: of what they are gradients of.
inline void expect_gradient(const at::Tensor& found, const at::Tensor& expected, double tolerance,
                            double scale = 1) {
  // Where a token reads nothing but itself, queries and keys have no gradients but what rounding leaves.
  constexpr double kNone = 1e-6, kRounding = 0.1;
  if (expected.norm().item<double>() < kNone * scale) {
    EXPECT_LT(found.norm().item<double>(), kRounding * scale);
  } else {
    EXPECT_LT(error_of(found, expected), tolerance);
  }
}

/// No block of queries has gone without keys that weigh anything. With steep slopes and long sequences some
/// have gone without some.
inline void expect_alibi_reaches_far_enough(const MultiheadAttentionData& data) {
  constexpr double kNothing = 0x1p-20;
  const kernels::BlockShape shape = data.shape();
  const at::Tensor weights =
      at::softmax(scores_of(data.exact_heads(data.projected().to(at::kDouble)), data.block.block), -1);
  const int64_t first_row = shape.tokens - shape.rows;
  for (int64_t block = first_row / kernels::AlibiReach::kReachRows; block < data.first_keys().size(2);
       ++block) {
    const int64_t begin = std::max<int64_t>(block * kernels::AlibiReach::kReachRows - first_row, 0);
    const int64_t end =
        std::min<int64_t>((block + 1) * kernels::AlibiReach::kReachRows - first_row, shape.rows);
    const at::Tensor first = data.first_keys().select(2, block).view({shape.sequences, shape.heads, 1, 1});
    const at::Tensor unread = at::arange(shape.tokens, first.options()).lt(first);
    const at::Tensor of_block = weights.narrow(2, begin, end - begin);
    EXPECT_LT(of_block.mul(unread).sum(-1).max().item<double>(), kNothing) << "block " << block;
  }
  const double greatest_slope = std::exp2(-8.0 / shape.heads);  // of the first head
  constexpr double kFurthest = 60;
  if (!data.block.block.tried().steep() && !data.block.block.tried().packed &&
      greatest_slope * (shape.tokens - 2 * kernels::AlibiReach::kReachRows) > kFurthest) {
    EXPECT_GT(data.first_keys().max().item<int>(), 0) << "nothing was left out";
  }
}

inline void expect_head_attention_is_the_reference(const MultiheadAttentionCase& tried, at::Device device) {
  const MultiheadAttentionData data(tried, device);
  const FusedBlockData& block = data.block.block;
  const at::Tensor exact = data.projected().to(at::kDouble).requires_grad_();
  at::Tensor lse;
  const at::Tensor expected = attention_of(data.exact_heads(exact), block, lse);
  const at::Tensor of_projected =
      torch::autograd::grad({expected}, {exact}, {block.dy.to(at::kDouble)})[0].detach();

  at::Tensor attention_output[2];
  for (at::Tensor& found : attention_output) {
    block.attention_output.fill_(NAN);
    kernels::multihead_attention(data.attention(), stream_of(device));
    found = block.attention_output.clone();
  }
  const auto rows_first = [](const at::Tensor& of_heads) { return of_heads.transpose(1, 2); };
  EXPECT_LT(error_of(block.without_padding(attention_output[0]), block.without_padding(expected)),
            value_tolerance(tried));
  EXPECT_LT(block.without_padding(rows_first(block.lse - lse)).abs().max().item<double>(),
            tried.block.steep() ? 1.0 : 0.1);
  EXPECT_TRUE(attention_output[0].isfinite().all().item<bool>()) << "padding must be finite";
  if (tried.block.alibi) expect_alibi_reaches_far_enough(data);
  if (tried.block.padded && !data.attention().is_streaming()) {
    const int64_t length = data.shape().length();
    const at::Tensor token = at::arange(length - data.shape().rows, length, block.first.options());
    const at::Tensor end_of_padding = block.first.div(16, "floor") * 16;  // in whole warp tiles
    const at::Tensor padding = token.unsqueeze(0).lt(end_of_padding.unsqueeze(1)).unsqueeze(-1);
    EXPECT_TRUE(attention_output[0].masked_select(padding).eq(0).all().item<bool>())
        << "warp_tiles of padding";
  }
  EXPECT_TRUE(at::equal(attention_output[0], attention_output[1])) << "not the same on repeat";

  at::Tensor of_all[2], of_apart[2];
  for (int repeat = 0; repeat < 2; ++repeat) {
    of_all[repeat] = block.poisoned(data.projected().sizes(), tried.type);
    of_apart[repeat] = block.poisoned(data.queries_apart().sizes(), tried.type);
    kernels::multihead_attention_backward(data.attention(), data.gradients(of_all[repeat], of_apart[repeat]),
                                          stream_of(device));
  }
  const bool apart = data.lying() == Lying::kApart;
  const auto found = data.views(of_all[0], of_apart[0]);
  const at::Tensor kinds = data.by_kind(of_projected);
  const at::Tensor d_queries = kinds.select(2, 0);
  const double tolerance = gradient_tolerance(tried), scale = tried.gradient;
  expect_gradient(found.queries, d_queries.narrow(1, data.rows_before(), data.shape().rows), tolerance,
                  scale);
  expect_gradient(found.keys, kinds.select(2, 1), tolerance, scale);
  expect_gradient(found.values, kinds.select(2, 2), tolerance, scale);
  const at::Tensor others = data.by_kind(of_all[0]).select(2, 0).narrow(1, 0, data.rows_before());
  EXPECT_TRUE(apart || others.eq(0).all().item<bool>()) << "queries that do not come out";
  EXPECT_TRUE(at::equal(apart ? of_apart[0] : of_all[0], apart ? of_apart[1] : of_all[1]))
      << "not the same on repeat";
  EXPECT_TRUE(at::equal(found.keys, data.views(of_all[1], of_apart[1]).keys)) << "not the same on repeat";
}

/// Both passes as blocks by sublayers have them, with the bits that they draw. Causal.
inline void expect_projected_attention_is_the_reference(const MultiheadAttentionCase& tried,
                                                        at::Device device) {
  constexpr int64_t kDraw = 5;
  MultiheadAttentionData data(tried, device);
  FusedBlockData& block = data.block.block;
  const kernels::BlockShape& shape = data.shape();
  const kernels::BlockPass pass(block.x, shape.heads, tried.block.dropout, 0.0, /*own_attention=*/true,
                                nullptr);
  if (tried.block.dropout > 0) {
    const at::Tensor& bits = block.attention_dropout_mask;
    block.attention_dropout_mask =
        pass.attention_dropout_mask(shape.attention_rows(), kDraw).view(bits.sizes());
  }
  const at::Tensor exact = data.projected().to(at::kDouble).requires_grad_();
  at::Tensor lse;
  const at::Tensor expected = attention_of(data.exact_heads(exact), block, lse);
  const at::Tensor of_projected =
      torch::autograd::grad({expected}, {exact}, {block.dy.to(at::kDouble)})[0].detach();

  const TokenStreams streams = {
      .context = shape.tokens, .queries = shape.queries, .mask = {}, .first = block.first};
  const bool has_rope = tried.lying == Lying::kWithRope, apart = tried.lying == Lying::kApart;
  const int64_t width = shape.width;
  EXPECT_TRUE(testing::own_attention_fits(shape, has_rope, streams.padded(), block.x.device(),
                                          block.x.scalar_type()));
  std::vector<at::Tensor> inputs = {data.projected()}, right = {of_projected};
  if (apart) {
    inputs = {data.queries_apart(), data.projected().narrow(2, width, 2 * width)};
    right = {of_projected.narrow(2, 0, width).narrow(1, data.rows_before(), shape.rows),
             of_projected.narrow(2, width, 2 * width)};
  }
  kernels::ProjectedAttention attention;
  const at::Tensor attention_output = attention.forward(
      inputs, has_rope ? kernels::ProjectionOrder::kByHeads : kernels::ProjectionOrder::kByThirds, shape.rows,
      streams, has_rope ? Rotary{data.block.cosines, data.block.sines} : Rotary{}, kDraw, pass);
  EXPECT_LT(error_of(block.without_padding(attention_output), block.without_padding(expected)),
            value_tolerance(tried));
  const auto [found, column_parts] = attention.backward(block.dy);
  ASSERT_EQ(found.size(), right.size());
  ASSERT_EQ(column_parts.defined(),
            data.attention().is_streaming() && shape.queries == 0 && !apart && !has_rope);
  if (column_parts.defined()) {
    EXPECT_LT(error_of(column_parts.sum(0), found[0].to(at::kDouble).sum(at::IntArrayRef{0, 1})), 1e-5);
  }
  for (size_t k = 0; k < right.size(); ++k) {
    EXPECT_EQ(found[k].sizes(), inputs[k].sizes());
    expect_gradient(found[k], right[k], gradient_tolerance(tried), tried.gradient);
  }
}

}  // namespace adtrain::testing
