#include "model/RollingKeys.h"

#include <ATen/ATen.h>

namespace adtrain {

void RollingPlaces::add(int64_t tokens, int64_t passing, at::Device device) {
  const int64_t more = tokens - passing_;
  counted_ += more;
  if (counts_.defined() && newest_ == tokens) {
    counts_.add_(more);
  } else {
    counts_ = at::arange(counted_ - tokens + 1, counted_ + 1, at::TensorOptions(at::kLong).device(device));
  }
  newest_ = tokens;
  passing_ = passing;
}

at::Tensor RollingPlaces::ages(int64_t token, at::Device device) const {
  const at::Tensor place = at::arange(taken(token), at::TensorOptions(at::kLong).device(device));
  return at::remainder(this->place(token) - place, window_);
}

NewestTokens NewestTokens::plain(const RollingPlaces& places, const kernels::KernelPlan& plan) {
  NewestTokens tokens = {.places = places, .rotary = {}, .penalties = {}, .by_kernel = {}};
  if (plan.decoding_attention()) {
    tokens.by_kernel = kernels::DistancePenalty::kNone;
    tokens.around_products = plan.by_sublayers();
  }
  return tokens;
}

at::Tensor RollingKeys::attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const NewestTokens& newest, const kernels::HeadNorms& norms) {
  const int64_t tokens = newest.places.tokens();
  if (!ring_.keys.defined()) ring_ = kernels::KeyValueRing::like(key, newest.places.window());
  if (tokens == 1) return attend_one(query, key, value, newest, norms, 0);
  std::vector<at::Tensor> found;
  for (int64_t token = 0; token < tokens; ++token) {
    const auto of_token = [token](const at::Tensor& heads) { return heads.narrow(2, token, 1); };
    found.push_back(attend_one(of_token(query), of_token(key), of_token(value), newest, norms, token));
  }
  return at::cat(found, 1);
}

at::Tensor RollingKeys::attend_one(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const NewestTokens& newest, const kernels::HeadNorms& norms,
                                   int64_t token) {
  const RollingPlaces& places = newest.places;
  if (newest.by_kernel) {
    const at::Tensor count = places.counts().narrow(0, token, 1);
    return kernels::decode_attention(query, key, value, ring_, count, *newest.by_kernel, norms);
  }
  const int64_t place = places.place(token), taken = places.taken(token);
  ring_.keys.narrow(2, place, 1).copy_(key);
  ring_.values.narrow(2, place, 1).copy_(value);
  const auto added =
      newest.penalties.empty() ? std::nullopt : std::optional(newest.penalties[static_cast<size_t>(token)]);
  return at::scaled_dot_product_attention(query, ring_.keys.narrow(2, 0, taken),
                                          ring_.values.narrow(2, 0, taken), added)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace adtrain
