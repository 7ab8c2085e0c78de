#include "environments/TaskSpaces.h"

#include <utility>

namespace adtrain {

std::optional<Space> TaskSpaces::unpacked_observation() const {
  if (packed_digits.empty()) return std::nullopt;
  std::vector<int64_t> shape = observation.shape, values;
  shape.push_back(std::ssize(packed_digits));
  for (int64_t element = 0; element < observation.size(); ++element) {
    values.insert(values.end(), packed_digits.begin(), packed_digits.end());
  }
  return Space::multi_discrete(std::move(shape), std::move(values));
}

bool TaskSpaces::accepts_observations(const Space& environment) const {
  const auto unpacked = unpacked_observation();
  return environment.fits(observation) || (unpacked && environment.fits(*unpacked));
}

}  // namespace adtrain
