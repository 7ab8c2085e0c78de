#pragma once

#include "evaluation/gpu/RolloutKernel.h"

namespace adtrain::gpu {

/// What a context's tokens are: without regions transition … transition query; with them, <compress>
/// transition … </compress> where there is a region before, then <compress> transition … query.
struct ContextTokens {
  int first_region;  ///< tokens of the region before
  int marker;        ///< tokens before the first transition of a region
  int previous, length;

  __device__ ContextTokens(const RolloutTrial& trial, bool compressed)
      : first_region(trial.previous > 0 ? trial.previous + 2 : 0),
        marker(compressed ? 1 : 0),
        previous(trial.previous),
        length(first_region + marker + trial.current + 1) {}

  __device__ bool is_query(int token) const { return token == length - 1; }
  __device__ bool is_start(int token) const {
    return marker == 1 && (token == first_region || (token == 0 && first_region > 0));
  }
  __device__ bool is_end(int token) const { return token == first_region - 1; }
  /// Which of the context's transitions a token is.
  __device__ int transition(int token) const {
    return token < first_region ? token - 1 : previous + token - first_region - marker;
  }
};

}  // namespace adtrain::gpu
