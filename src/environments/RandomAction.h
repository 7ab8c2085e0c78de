#pragma once

#include <cstddef>

#include "base/Random.h"
#include "environments/Space.h"

namespace adtrain {

/// One element of a uniformly random action, in the space's own numbers. Of a box as Gymnasium samples it:
/// uniform between two bounds, exponential from one on, standard normal without any.
double random_element(const Space& action, size_t element, RandomStream& random);

}  // namespace adtrain
