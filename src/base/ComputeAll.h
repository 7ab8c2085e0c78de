#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/InParallel.h"

namespace adtrain {

/// Computes result(0) … result(count − 1), as bytes, and returns all of them: by threads of this process, or
/// together with other processes, each of which computes some. Several threads call `result` at once.
using ComputeAll =
    std::function<std::vector<std::string>(size_t count, const std::function<std::string(size_t)>& result)>;

/// By `threads` threads of this process.
inline ComputeAll compute_alone(size_t threads) {
  return [threads](size_t count, const std::function<std::string(size_t)>& result) {
    std::vector<std::string> results(count);
    in_parallel(count, threads, [&](size_t i) { results[i] = result(i); });
    return results;
  };
}

}  // namespace adtrain
