#include "kernels/rope/Rotary.h"

#include <ATen/ATen.h>

namespace adtrain {
namespace {

constexpr double kRotaryBase = 10000.0;

}  // namespace

Rotary Rotary::of(const at::Tensor& positions, int64_t head_size) {
  const at::Tensor pairs = at::arange(0, head_size, 2, positions.options().dtype(at::kFloat));
  const at::Tensor angles =
      positions.to(at::kFloat).unsqueeze(-1) * at::pow(kRotaryBase, pairs / -static_cast<double>(head_size));
  return {angles.cos(), angles.sin()};
}

Rotary Rotary::with_queries(const TokenStreams& streams) const {
  if (streams.queries == 0) return *this;
  const auto of_all = [&](const at::Tensor& of_context) {
    return at::cat({of_context, of_context.narrow(0, streams.first_query_slot(), streams.queries)});
  };
  return {of_all(cosines), of_all(sines)};
}

}  // namespace adtrain
