#include "model/ParameterFactory.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "base/Random.h"

namespace adtrain {

template <class Draw>
at::Tensor ParameterFactory::make(const std::string& name, at::IntArrayRef shape, Draw draw) {
  at::Tensor parameter = at::empty(shape, at::TensorOptions(device_).dtype(at::kFloat));
  if (!parameter.is_meta()) {
    RandomStream stream(seed_of(seed_, made_.size()));
    std::generate_n(parameter.data_ptr<float>(), parameter.numel(),
                    [&] { return static_cast<float>(draw(stream)); });
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
