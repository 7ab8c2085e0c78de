#include "model/RollingKeys.h"

#include <ATen/ATen.h>

namespace adtrain {

void RollingPlaces::add(at::Device device) {
  ++tokens_;
  if (!count_.defined()) count_ = at::zeros({1}, at::TensorOptions(at::kLong).device(device));
  count_.add_(1);
}

at::Tensor RollingPlaces::ages(at::Device device) const {
  const at::Tensor place = at::arange(taken(), at::TensorOptions(at::kLong).device(device));
  return at::remainder(newest() - place, window_);
}

at::Tensor RollingKeys::attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const NewestToken& token) {
  const RollingPlaces& places = token.places;
  if (!ring_.keys.defined()) ring_ = kernels::KeyValueRing::like(key, places.window());
  if (token.by_kernel)
    return kernels::decode_attention(query, key, value, ring_, places.count(), *token.by_kernel);
  ring_.keys.narrow(2, places.newest(), 1).copy_(key);
  ring_.values.narrow(2, places.newest(), 1).copy_(value);
  const auto added = token.penalty.defined() ? std::optional(token.penalty) : std::nullopt;
  return at::scaled_dot_product_attention(query, ring_.keys.narrow(2, 0, places.taken()),
                                          ring_.values.narrow(2, 0, places.taken()), added)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace adtrain
