#include "base/RandomToken.h"

#include <random>

#include <fmt/format.h>

namespace adtrain {

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace adtrain
