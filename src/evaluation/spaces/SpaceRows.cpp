#include "evaluation/spaces/SpaceRows.h"

#include <vector>

#include <ATen/ATen.h>

#include "data/TensorType.h"

namespace adtrain {

at::Tensor rows_of(std::span<const std::byte> bytes, const Space& space, int64_t n) {
  std::vector<int64_t> shape = {n};
  shape.insert(shape.end(), space.shape.begin(), space.shape.end());
  return at::from_blob(const_cast<std::byte*>(bytes.data()), shape,
                       at::TensorOptions(scalar_type_of(space.type)));
}

at::Tensor as_trained(const at::Tensor& observations, const TaskSpaces& trained) {
  const bool is_unpacked =
      !trained.packed_digits.empty() && observations.dim() > 1 + std::ssize(trained.observation.shape);
  if (!is_unpacked) return observations;
  at::Tensor number = at::zeros(observations.sizes().slice(0, observations.dim() - 1), at::kLong);
  for (size_t digit = 0; digit < trained.packed_digits.size(); ++digit) {
    number = number * trained.packed_digits[digit] +
             observations.select(-1, static_cast<int64_t>(digit)).to(at::kLong);
  }
  return number;
}

}  // namespace adtrain
