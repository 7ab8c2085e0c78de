#include "model/spaces/VectorEncoder.h"

#include <ATen/ATen.h>

namespace adtrain {

VectorEncoder VectorEncoder::linear(ParameterFactory& factory, const std::string& name, int64_t numbers,
                                    int64_t features, const Initialisation& initial) {
  VectorEncoder encoder;
  encoder.first_ = initial.outer_linear(factory, name + ".linear", numbers, features);
  return encoder;
}

VectorEncoder VectorEncoder::mlp(ParameterFactory& factory, const std::string& name, int64_t numbers,
                                 int64_t features, const Initialisation& initial) {
  VectorEncoder encoder;
  encoder.first_ = initial.outer_linear(factory, name + ".linear_1", numbers, features);
  encoder.first_norm_ = layer_norm(factory, name + ".norm_1", features);
  encoder.second_ = initial.outer_linear(factory, name + ".linear_2", features, features);
  encoder.second_norm_ = layer_norm(factory, name + ".norm_2", features);
  return encoder;
}

at::Tensor VectorEncoder::operator()(const at::Tensor& vectors) const {
  const at::Tensor x =
      vectors.reshape({vectors.size(0), vectors.size(1), -1}).to(first_.weight.scalar_type());
  if (!second_.weight.defined()) return first_(x);
  return second_norm_(at::leaky_relu(second_(first_norm_(at::leaky_relu(first_(x))))));
}

}  // namespace adtrain
