#include "model/ParameterFactory.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/Cores.h"
#include "base/InParallel.h"
#include "base/Random.h"

namespace adtrain {

template <class Draw>
at::Tensor ParameterFactory::make(const std::string& name, at::IntArrayRef shape, Draw draw) {
  at::Tensor parameter = at::empty(shape, at::TensorOptions(device_).dtype(at::kFloat));
  if (draws_) {
    const uint64_t key = seed_of(seed_, made_.size());
    RandomStream one(key);
    draw(one);
    const uint64_t numbers_a_draw = one.counter();
    // All cores draw, each piece from its place in the stream: the same values as by one.
    constexpr size_t kPiece = size_t{1} << 18;
    const auto count = static_cast<size_t>(parameter.numel());
    float* const values = parameter.data_ptr<float>();
    in_parallel((count + kPiece - 1) / kPiece, static_cast<size_t>(usable_cores()), [&](size_t piece) {
      const size_t first = piece * kPiece;
      RandomStream stream(key, first * numbers_a_draw);
      std::generate_n(values + first, std::min(kPiece, count - first),
                      [&] { return static_cast<float>(draw(stream)); });
    });
  }
  parameter.set_requires_grad(true);
  made_.push_back({prefix_ + name, parameter});
  return parameter;
}

std::shared_ptr<QuantisedLinear> ParameterFactory::linear_weight(const std::string& name) {
  auto linear = std::make_shared<QuantisedLinear>();
  linears_[prefix_ + name] = linear;
  return linear;
}

at::Tensor ParameterFactory::constant(const std::string& name, at::IntArrayRef shape, float value) {
  return make(name, shape, [value](RandomStream&) { return value; });
}

at::Tensor ParameterFactory::uniform(const std::string& name, at::IntArrayRef shape, double bound) {
  return make(name, shape, [bound](RandomStream& stream) { return bound * (2.0 * stream.uniform() - 1.0); });
}

at::Tensor ParameterFactory::normal(const std::string& name, at::IntArrayRef shape, double deviation) {
  return make(name, shape, [deviation](RandomStream& stream) { return deviation * stream.normal(); });
}

}  // namespace adtrain
