#include "model/Attention.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "kernels/attention/LibraryAttention.h"
#include "kernels/cpu/CpuAttention.h"
#include "kernels/dropout/Dropout.h"

namespace adtrain {

at::Tensor attend(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
                  double dropout_rate) {
  if (kernels::cpu_attention_fits(qkv, streams)) {
    return kernels::attend_on_cpu(qkv, rows, streams, rotary, dropout_rate);
  }
  return kernels::library_attention(qkv, rows, streams, rotary, dropout_rate);
}

at::Tensor alibi_slopes(int64_t heads, const at::Tensor& like) {
  const at::Tensor head = at::arange(1, heads + 1, like.options().dtype(at::kFloat).requires_grad(false));
  return at::exp2(head * (-8.0 / static_cast<double>(heads)));
}

at::Tensor alibi_scores(int64_t heads, const TokenStreams& streams, const at::Tensor& like) {
  const auto numbers = like.options().dtype(at::kFloat).requires_grad(false);
  const at::Tensor context = at::arange(streams.context, numbers);
  const at::Tensor position = at::cat({context, last_of(context, 0, streams.queries)});
  const at::Tensor ahead = position.unsqueeze(0) - position.unsqueeze(1);  // (reader, read)

  // Of the tokens at or before its position, a query reads itself alone and a context token no query.
  const at::Tensor token = at::arange(streams.tokens(), numbers);
  const at::Tensor is_query = token.ge(static_cast<double>(streams.context));
  const at::Tensor other = token.unsqueeze(0).ne(token.unsqueeze(1));
  const at::Tensor same_place = is_query.unsqueeze(1).logical_and(ahead.eq(0));
  at::Tensor hidden = ahead.gt(0).logical_or(other.logical_and(is_query.unsqueeze(0).logical_or(same_place)));

  if (streams.packed()) hidden = hidden.logical_or(streams.segments.before()).unsqueeze(1);
  const at::Tensor scores = alibi_slopes(heads, like).view({1, heads, 1, 1}) * ahead;
  return scores.masked_fill(hidden, -std::numeric_limits<float>::infinity()).to(like.scalar_type());
}

at::Tensor attend_with_scores(const at::Tensor& qkv, int64_t rows, const at::Tensor& added,
                              double dropout_rate) {
  const at::Tensor queries = last_of(qkv[0], 2, rows), scores = last_of(added, 2, rows);
  if (dropout_rate == 0 || qkv.is_cuda()) {
    return at::scaled_dot_product_attention(queries, qkv[1], qkv[2], scores, dropout_rate)
        .transpose(1, 2)
        .flatten(2);
  }
  // On the CPU libtorch would do the same by these operators, with masks of the device's generator.
  const double scale = 1.0 / std::sqrt(static_cast<double>(qkv.size(4)));
  const at::Tensor weights = at::softmax(at::matmul(queries * scale, qkv[1].transpose(2, 3)) + scores, -1);
  return at::matmul(kernels::dropout(weights, dropout_rate), qkv[2]).transpose(1, 2).flatten(2);
}

}  // namespace adtrain
