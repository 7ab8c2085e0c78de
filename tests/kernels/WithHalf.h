#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

namespace adtrain::testing {

/// Cases with a `name` and a `type`, and behind them the same in fp16.
template <class Case>
std::vector<Case> with_fp16(std::vector<Case> cases) {
  for (size_t k = 0, count = cases.size(); k < count; ++k) {
    Case half = cases[k];
    half.name += "_in_fp16";
    half.type = at::kHalf;
    cases.push_back(std::move(half));
  }
  return cases;
}

}  // namespace adtrain::testing
