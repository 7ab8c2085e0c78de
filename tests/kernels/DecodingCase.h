#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>

#include "kernels/FusedDevice.h"
#include "kernels/attention/DistancePenalty.h"
#include "kernels/attention/decoding/KeyValueRing.h"

/// Rings of kept keys and values, and attention over them by its definition.
namespace adtrain::testing {

struct DecodingCase {
  int64_t sequences, heads, head_size, window;
  int64_t tokens;  ///< with the newest
  at::ScalarType type = at::kBFloat16;
  kernels::DistancePenalty penalty = kernels::DistancePenalty::kNone;
  double query_scale = 1;
};

inline double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

/// Queries, keys and values of one token (3, B, heads, 1, head size): views of a fused projection.
inline at::Tensor random_token(const DecodingCase& tried) {
  const auto options = at::TensorOptions().device(fused_device()->device).dtype(tried.type);
  const at::Tensor projected = at::randn({tried.sequences, 1, 3, tried.heads, tried.head_size}, options);
  projected.select(2, 0).mul_(tried.query_scale);
  return projected.permute({2, 0, 3, 1, 4});
}

/// A ring in which all tokens but the newest are, and what has left it is not.
inline kernels::KeyValueRing random_ring(const DecodingCase& tried, const at::Tensor& key) {
  kernels::KeyValueRing ring = kernels::KeyValueRing::like(key, tried.window);
  ring.keys.normal_();
  ring.values.normal_();
  ring.key_norms.copy_(ring.keys.to(at::kFloat).square().sum(-1).amax(-1));
  for (const at::Tensor& kept : {ring.keys, ring.values})
    if (tried.tokens <= tried.window)
      kept.narrow(2, tried.tokens - 1, tried.window - tried.tokens + 1)
          .fill_(std::numeric_limits<double>::quiet_NaN());
  return ring;
}

inline kernels::KeyValueRing copy_of(const kernels::KeyValueRing& ring) {
  return {ring.keys.clone(), ring.values.clone(), ring.key_norms.clone(), ring.arrivals.clone()};
}

/// Of each place how many tokens came after the one that it keeps.
inline at::Tensor ages_of(const DecodingCase& tried, int64_t tokens) {
  const at::Tensor place = at::arange(std::min(tokens, tried.window), at::kLong);
  return at::remainder((tokens - 1) % tried.window - place, tried.window)
      .to(fused_device()->device, at::kDouble);
}

/// The definition, in float64, where the ring has the newest token already.
inline at::Tensor attended_plainly(const DecodingCase& tried, const at::Tensor& query,
                                   const kernels::KeyValueRing& ring, int64_t tokens) {
  const auto kept = [&](const at::Tensor& all) {
    return all.narrow(2, 0, std::min(tokens, tried.window)).to(at::kDouble);
  };
  at::Tensor scores = at::matmul(query.to(at::kDouble), kept(ring.keys).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(tried.head_size));
  if (tried.penalty == kernels::DistancePenalty::kAlibi) {
    const at::Tensor head = at::arange(1, tried.heads + 1, scores.options());
    const at::Tensor slope = at::exp2(head * (-8.0 / static_cast<double>(tried.heads)));
    scores = scores - slope.view({-1, 1, 1}) * ages_of(tried, tokens);
  }
  return at::matmul(at::softmax(scores, -1), kept(ring.values)).transpose(1, 2).flatten(2);
}

inline at::Tensor counted(int64_t tokens) {
  return at::full({1}, tokens, at::TensorOptions(at::kLong).device(fused_device()->device));
}

}  // namespace adtrain::testing
