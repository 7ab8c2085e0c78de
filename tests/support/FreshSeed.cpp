#include "support/FreshSeed.h"

#include <cstdlib>
#include <random>

namespace adtrain {
namespace {

std::optional<uint64_t> seed_of_run;  ///< a value once a test has asked for it

}  // namespace

uint64_t fresh_seed() {
  if (!seed_of_run) {
    const char* const said = std::getenv("ADTRAIN_TEST_SEED");
    seed_of_run = said != nullptr ? std::strtoull(said, nullptr, 10) : std::random_device{}();
  }
  return *seed_of_run;
}

std::optional<uint64_t> seed_asked_for() {
  return seed_of_run;
}

}  // namespace adtrain
