#pragma once

#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "base/Random.h"

namespace adtrain {

/// Draws `count` ≤ `size` vectors of length 1 that are orthogonal to each other, uniformly: Gram-Schmidt on
/// normal numbers.
inline std::vector<std::vector<double>> draw_orthogonal(size_t count, size_t size, RandomStream& random) {
  std::vector<std::vector<double>> basis;
  for (size_t row = 0; row < count; ++row) {
    std::vector<double> vector(size);
    for (double& number : vector) number = random.normal();
    const auto dot = [&vector](const std::vector<double>& other) {
      return std::inner_product(vector.begin(), vector.end(), other.begin(), 0.0);
    };
    for (const std::vector<double>& other : basis) {
      const double overlap = dot(other);
      for (size_t i = 0; i < size; ++i) vector[i] -= overlap * other[i];
    }
    const double length = std::sqrt(dot(vector));
    for (double& number : vector) number /= length;
    basis.push_back(std::move(vector));
  }
  return basis;
}

}  // namespace adtrain
