#include "model/Initialisation.h"

#include <cmath>

namespace adtrain {
namespace {

constexpr double kSmallDeviation = 0.02;

}  // namespace

Initialisation::Initialisation(const ModelOptions& options)
    : preset_(options.block()), deviation_(kSmallDeviation), residual_deviation_(kSmallDeviation) {
  if (preset_ != TransformerBlock::kVintix) return;
  const auto width = static_cast<double>(options.tf_n_embd), layers = static_cast<double>(options.tf_n_layer);
  deviation_ = std::sqrt(2.0 / (5.0 * width));
  residual_deviation_ = 1.0 / (std::sqrt(width) * layers);
}

Linear Initialisation::linear(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out,
                              bool with_bias) const {
  if (preset_ == TransformerBlock::kPreNorm) return default_linear(factory, name, in, out, with_bias);
  return normal_linear(factory, name, in, out, deviation_, with_bias);
}

Linear Initialisation::residual_linear(ParameterFactory& factory, const std::string& name, int64_t in,
                                       int64_t out, bool with_bias) const {
  if (preset_ == TransformerBlock::kPreNorm) return default_linear(factory, name, in, out, with_bias);
  return normal_linear(factory, name, in, out, residual_deviation_, with_bias);
}

Linear Initialisation::outer_linear(ParameterFactory& factory, const std::string& name, int64_t in,
                                    int64_t out) const {
  if (preset_ == TransformerBlock::kXland) return normal_linear(factory, name, in, out, kSmallDeviation);
  return default_linear(factory, name, in, out);
}

Embedding Initialisation::outer_embedding(ParameterFactory& factory, const std::string& name, int64_t count,
                                          int64_t width) const {
  return embedding(factory, name, count, width, preset_ == TransformerBlock::kXland ? kSmallDeviation : 1.0);
}

at::Tensor Initialisation::first_step(ParameterFactory& factory, const std::string& name,
                                      int64_t features) const {
  return factory.normal(name, {features}, preset_ == TransformerBlock::kVintix ? 1.0 : kSmallDeviation);
}

}  // namespace adtrain
