#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/Parameters.h"
#include "model/QuantisedLinear.h"

namespace adtrain {

/// Creates a model's parameters, fp32 on the CPU, and keeps them in a list in order of creation.
///
/// Each parameter draws from a random stream of its own, keyed by the seed and its place in the list, so the
/// values depend neither on rank nor on device nor on torch's generators.
class ParameterFactory {
 public:
  explicit ParameterFactory(uint64_t seed) : seed_(seed) {}
  /// Makes parameters with shapes only, on libtorch's device "meta", which take no memory.
  static ParameterFactory without_values() { return ParameterFactory(0, at::kMeta, /*draws=*/false); }
  /// Makes parameters whose memory is not written: all of them are to be loaded. `seed`: of what else a
  /// plug-in's network draws.
  static ParameterFactory to_be_loaded(uint64_t seed) {
    return ParameterFactory(seed, at::kCPU, /*draws=*/false);
  }

  uint64_t seed() const { return seed_; }

  at::Tensor constant(const std::string& name, at::IntArrayRef shape, float value);
  /// Uniform in ±bound.
  at::Tensor uniform(const std::string& name, at::IntArrayRef shape, double bound);
  /// Equivalent to torch's `trunc_normal_(std=.02)` too: that truncates at ±2, a hundred deviations away.
  at::Tensor normal(const std::string& name, at::IntArrayRef shape, double deviation);

  /// Says that the parameter of this name, which was made, is the weight of a linear layer that may be
  /// quantised, and returns what the layer multiplies by then.
  std::shared_ptr<QuantisedLinear> linear_weight(const std::string& name);

  /// From now on names begin with "groups.GROUP.", or with nothing where `group` is empty.
  void begin_group(const std::string& group) { prefix_ = prefix_of(group); }
  static std::string prefix_of(const std::string& group) {
    return group.empty() ? "" : "groups." + group + ".";
  }

  /// Returns all parameters in order; leaves the factory without any.
  std::vector<NamedTensor> take() { return std::exchange(made_, {}); }
  /// The same of what linear_weight() returned.
  QuantisedLinears take_linears() { return std::exchange(linears_, {}); }

 private:
  ParameterFactory(uint64_t seed, at::Device device, bool draws)
      : seed_(seed), device_(device), draws_(draws) {}
  template <class Draw>
  at::Tensor make(const std::string& name, at::IntArrayRef shape, Draw draw);

  uint64_t seed_;
  at::Device device_ = at::kCPU;
  bool draws_ = true;  ///< values
  std::string prefix_;
  std::vector<NamedTensor> made_;
  QuantisedLinears linears_;
};

}  // namespace adtrain
