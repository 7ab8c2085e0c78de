#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/Parameters.h"

namespace adtrain {

/// Which weights of another network a new one begins with. Tensors of equal name and shape are taken. Those
/// that stand between spaces and blocks (is_of_spaces) may differ: the new network's are then new, the
/// other's are left out. All else must agree.
struct WeightTransfer {
  struct Difference {
    std::string name;
    std::optional<std::vector<int64_t>> found;  ///< the shape in the other network; none: it has no such one
    std::optional<std::vector<int64_t>> expected;  ///< in the new one; none: it has no such one
  };
  std::vector<std::string> taken;
  std::vector<Difference> fresh;     ///< of the new network, with its own first values
  std::vector<Difference> left_out;  ///< of the other one, which the new one has no place for
  /// Why the weights cannot be taken, one line each; then nothing is to be taken.
  std::vector<std::string> faults;

  /// `wanted`: the new network's, whose values are not read. With `same_spaces` all tensors must agree.
  static WeightTransfer between(std::span<const NamedTensor> given, std::span<const NamedTensor> wanted,
                                bool same_spaces);

  /// Copies the taken tensors in, from any device and floating-point type.
  void carry_out(std::span<const NamedTensor> given, ParameterBuffer& parameters) const;
  /// A line for each tensor that is new or left out.
  std::vector<std::string> lines() const;
};

}  // namespace adtrain
