#include "kernels/cpu/AttentionHead.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/SmallMatrix.h"

namespace adtrain::kernels {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float largest(const float* values, int64_t count) {
  Vec most = Vec{} + kNothing;
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const Vec next = load(values + j);
    most = next > most ? next : most;
  }
  float result = kNothing;
  for (int64_t lane = 0; lane < kLanes; ++lane) result = std::max(result, most[lane]);
  for (; j < count; ++j) result = std::max(result, values[j]);
  return result;
}

/// Calls take(j, e^(scores[j] − shift)) for the vectors before `width`. No score before `count` may be much
/// above `shift`. From `count` on the powers are 0.
template <class Take>
void for_powers(const float* scores, int64_t count, int64_t width, float shift, Take take) {
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) take(j, exp_at_least(load(scores + j) - shift));
  for (; j < width; j += kLanes) take(j, first_lanes(exp_at_least(load(scores + j) - shift), count - j));
}

/// scores[j] becomes e^(scores[j] − shift) after dropout for j < count, and 0 from `count` to `width`.
/// Returns the sum of the powers before dropout.
float exponentiate(float* scores, int64_t count, int64_t width, float shift, const CpuDropout::Row& kept) {
  return kept.with_factors([=](auto factors) {
    Vec sums = {};
    for_powers(scores, count, width, shift, [&](int64_t j, const Vec& power) {
      sums += power;
      store(scores + j, power * factors(j));
    });
    return sum(sums);
  });
}

/// The scores become weights after dropout, 0 for count ≤ j < width. The gradients of these weights become
/// the gradients of the scores. `mean` is the weighted mean of the gradients.
void to_score_gradients(float* scores, float* gradients, int64_t count, int64_t width, float log_sum,
                        float mean, const CpuDropout::Row& kept) {
  kept.with_factors([=](auto factors) {
    for_powers(scores, count, width, log_sum, [=](int64_t j, const Vec& weights) {
      const Vec dropped = weights * factors(j);
      store(gradients + j, dropped * load(gradients + j) - weights * mean);
      store(scores + j, dropped);
    });
  });
}

/// The address of a head's first token in (3, B, heads, tokens, depth); `which`: 0 queries, 1 keys, 2 values.
float* cell(const at::Tensor& qkv, int64_t which, int64_t sequence, int64_t head) {
  return static_cast<float*>(qkv.data_ptr()) + which * qkv.stride(0) + sequence * qkv.stride(1) +
         head * qkv.stride(2);
}

}  // namespace

HeadPlan::HeadPlan(const at::Tensor& qkv, int64_t rows, const TokenStreams& streams, const Rotary& rotary,
                   const CpuDropout& dropout_of_weights)
    : tokens(qkv.size(3)),
      context(streams.context),
      queries(streams.queries),
      first_row(tokens - rows),
      depth(qkv.size(4)),
      stride(padded_to_tile(context)),
      scale(1.0F / std::sqrt(static_cast<float>(depth))),
      cosines(rotary.cosines.defined() ? rotary.cosines.const_data_ptr<float>() : nullptr),
      sines(rotary.sines.defined() ? rotary.sines.const_data_ptr<float>() : nullptr),
      dropout(dropout_of_weights) {}

void HeadPlan::rotate(float* row, int64_t token, bool back) const {
  if (cosines == nullptr) return;
  const int64_t half = depth / 2;
  const float sign = back ? -1.0F : 1.0F;
  for (int64_t i = 0; i < half; ++i) {
    const float cosine = cosines[token * half + i];
    const float sine = sign * sines[token * half + i];
    const float a = row[i];
    const float b = row[i + half];
    row[i] = a * cosine - b * sine;
    row[i + half] = b * cosine + a * sine;
  }
}

AttentionHead::AttentionHead(const HeadPlan& plan)
    : plan_(plan),
      // The last group of kRows rows may be incomplete.
      q_(static_cast<size_t>((plan.rows() + kRows) * plan.depth)),
      k_(static_cast<size_t>(plan.tokens * plan.depth)),
      v_(k_.size()),
      k_columns_(static_cast<size_t>(plan.depth * plan.stride)),
      v_columns_(k_columns_.size()),
      weights_(static_cast<size_t>(kRows * plan.stride)),
      d_weights_(weights_.size()),
      read_(static_cast<size_t>(kRows * plan.depth)),
      d_q_(q_.size()),
      d_k_(k_.size()),
      d_v_(k_.size()) {}

void AttentionHead::gather(const at::Tensor& qkv, int64_t sequence, int64_t head) {
  sequence_ = sequence;
  head_ = head;
  first_kept_row_ = (sequence * qkv.size(2) + head) * plan_.rows();
  const int64_t apart = qkv.stride(3);
  const float* queries = cell(qkv, 0, sequence, head) + plan_.first_row * apart;
  copy_rows(queries, apart, plan_.rows(), plan_.depth, q_.data(), plan_.depth);
  copy_rows(cell(qkv, 1, sequence, head), apart, plan_.tokens, plan_.depth, k_.data(), plan_.depth);
  copy_rows(cell(qkv, 2, sequence, head), apart, plan_.tokens, plan_.depth, v_.data(), plan_.depth);
  for (int64_t token = 0; token < plan_.tokens; ++token) plan_.rotate(row(k_, token), token, false);
  for (int64_t i = 0; i < plan_.rows(); ++i) {
    plan_.rotate(row(q_, i), plan_.first_row + i, false);
    scale(row(q_, i), plan_.scale, plan_.depth);
  }
  transpose(k_.data(), plan_.context, plan_.depth, plan_.stride, k_columns_.data());
}

int64_t AttentionHead::rows_in_block(int64_t first) const {
  return std::min(kRows, plan_.rows() - first);
}

/// How many tokens of the context the rows of the block read at most.
int64_t AttentionHead::block_reads(int64_t first) const {
  int64_t most = 0;
  for (int64_t i = 0; i < rows_in_block(first); ++i) {
    most = std::max(most, plan_.reads(plan_.first_row + first + i));
  }
  return most;
}

void AttentionHead::forward(float* out, int64_t out_stride, float* lse) {
  for (int64_t first = 0; first < plan_.rows(); first += kRows) {
    const int64_t count = block_reads(first);
    const int64_t width = padded_to_tile(count);
    float own[kRows], totals[kRows];
    products(row(q_, first), k_columns_.data(), plan_.stride, plan_.depth, width, weights_.data());
    for (int64_t i = 0; i < rows_in_block(first); ++i) {
      const int64_t token = plan_.first_row + first + i;
      float* weights = weights_.data() + i * plan_.stride;
      own[i] = plan_.is_query(token) ? dot(row(q_, first + i), row(k_, token), plan_.depth) : kNothing;
      const float most = std::max(own[i], largest(weights, plan_.reads(token)));
      own[i] = plan_.is_query(token) ? std::exp(own[i] - most) : 0;
      totals[i] = own[i] + exponentiate(weights, plan_.reads(token), width, most, kept(first + i));
      lse[first + i] = most + std::log(totals[i]);
      if (own[i] != 0) own[i] *= kept(first + i).factor(plan_.reads(token));
    }
    weighted_sums(weights_.data(), plan_.stride, v_.data(), plan_.depth, count, read_.data());
    for (int64_t i = 0; i < rows_in_block(first); ++i) {
      if (own[i] != 0) add_scaled(row(read_, i), own[i], row(v_, plan_.first_row + first + i), plan_.depth);
      scale(row(read_, i), 1 / totals[i], plan_.depth);
    }
    copy_rows(read_.data(), plan_.depth, rows_in_block(first), plan_.depth, out + first * out_stride,
              out_stride);
  }
}

void AttentionHead::backward(const float* out, const float* d_out, int64_t out_stride, const float* lse,
                             at::Tensor& d_qkv) {
  std::fill(d_k_.begin(), d_k_.end(), 0.0F);
  std::fill(d_v_.begin(), d_v_.end(), 0.0F);
  transpose(v_.data(), plan_.context, plan_.depth, plan_.stride, v_columns_.data());
  for (int64_t first = 0; first < plan_.rows(); first += kRows) {
    const int64_t count = block_reads(first);
    const int64_t width = padded_to_tile(count);
    float own[kRows] = {}, d_own[kRows] = {};
    std::fill(read_.begin(), read_.end(), 0.0F);
    copy_rows(d_out + first * out_stride, out_stride, rows_in_block(first), plan_.depth, read_.data(),
              plan_.depth);
    products(row(q_, first), k_columns_.data(), plan_.stride, plan_.depth, width, weights_.data());
    products(read_.data(), v_columns_.data(), plan_.stride, plan_.depth, width, d_weights_.data());
    for (int64_t i = 0; i < kRows; ++i) {
      float* weights = weights_.data() + i * plan_.stride;
      float* d_weights = d_weights_.data() + i * plan_.stride;
      if (i >= rows_in_block(first)) {
        std::fill_n(weights, width, 0.0F);
        std::fill_n(d_weights, width, 0.0F);
        continue;
      }
      const int64_t token = plan_.first_row + first + i;
      const float log_sum = lse[first + i];
      const float mean = dot(row(read_, i), out + (first + i) * out_stride, plan_.depth);
      to_score_gradients(weights, d_weights, plan_.reads(token), width, log_sum, mean, kept(first + i));
      if (plan_.is_query(token)) {
        const float weight = std::exp(dot(row(q_, first + i), row(k_, token), plan_.depth) - log_sum);
        own[i] = weight * kept(first + i).factor(plan_.reads(token));
        d_own[i] = own[i] * dot(row(read_, i), row(v_, token), plan_.depth) - weight * mean;
      }
    }
    weighted_sums(d_weights_.data(), plan_.stride, k_.data(), plan_.depth, count, row(d_q_, first));
    add_outer(d_weights_.data(), plan_.stride, row(q_, first), plan_.depth, count, d_k_.data());
    add_outer(weights_.data(), plan_.stride, read_.data(), plan_.depth, count, d_v_.data());
    for (int64_t i = 0; i < rows_in_block(first); ++i) {
      own_gradients(first + i, own[i], d_own[i], row(read_, i));
    }
  }
  scatter(d_qkv);
}

/// Adds the gradients of a query's own key and value, and the query's gradient through its own key.
void AttentionHead::own_gradients(int64_t index, float own_weight, float own_score_gradient,
                                  const float* d_read) {
  const int64_t token = plan_.first_row + index;
  if (!plan_.is_query(token)) return;
  add_scaled(row(d_q_, index), own_score_gradient, row(k_, token), plan_.depth);
  add_scaled(row(d_k_, token), own_score_gradient, row(q_, index), plan_.depth);
  add_scaled(row(d_v_, token), own_weight, d_read, plan_.depth);
}

void AttentionHead::scatter(at::Tensor& d_qkv) {
  const int64_t apart = d_qkv.stride(3);
  for (int64_t token = 0; token < plan_.tokens; ++token) plan_.rotate(row(d_k_, token), token, true);
  for (int64_t i = 0; i < plan_.rows(); ++i) {
    plan_.rotate(row(d_q_, i), plan_.first_row + i, true);
    scale(row(d_q_, i), plan_.scale, plan_.depth);
  }
  float* d_queries = cell(d_qkv, 0, sequence_, head_);
  for (int64_t token = 0; token < plan_.first_row; ++token) {
    std::fill_n(d_queries + token * apart, plan_.depth, 0.0F);
  }
  copy_rows(d_q_.data(), plan_.depth, plan_.rows(), plan_.depth, d_queries + plan_.first_row * apart, apart);
  copy_rows(d_k_.data(), plan_.depth, plan_.tokens, plan_.depth, cell(d_qkv, 1, sequence_, head_), apart);
  copy_rows(d_v_.data(), plan_.depth, plan_.tokens, plan_.depth, cell(d_qkv, 2, sequence_, head_), apart);
}

}  // namespace adtrain::kernels
