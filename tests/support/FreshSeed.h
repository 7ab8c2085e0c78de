#pragma once

#include <cstdint>
#include <optional>

namespace adtrain {

/// For tests of random input: another number in each run of a program, the same throughout the run. Where a
/// test has failed, the program says it; with it as ADTRAIN_TEST_SEED the run has the same input again.
uint64_t fresh_seed();

/// The same, if a test has asked for it.
std::optional<uint64_t> seed_asked_for();

}  // namespace adtrain
