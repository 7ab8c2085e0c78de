#include "model/RollingKeys.h"

#include <ATen/ATen.h>

namespace adtrain {

at::Tensor RollingPlaces::ages(at::Device device) const {
  const at::Tensor place = at::arange(taken(), at::TensorOptions(at::kLong).device(device));
  return at::remainder(newest() - place, window_);
}

at::Tensor RollingKeys::attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const RollingPlaces& places, const at::Tensor& penalty) {
  if (!keys_.defined()) {
    const std::vector<int64_t> shape = {key.size(0), key.size(1), places.window(), key.size(3)};
    keys_ = at::empty(shape, key.options());
    values_ = at::empty(shape, value.options());
  }
  keys_.narrow(2, places.newest(), 1).copy_(key);
  values_.narrow(2, places.newest(), 1).copy_(value);
  const auto added = penalty.defined() ? std::optional(penalty) : std::nullopt;
  return at::scaled_dot_product_attention(query, keys_.narrow(2, 0, places.taken()),
                                          values_.narrow(2, 0, places.taken()), added)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace adtrain
