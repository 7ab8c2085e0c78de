#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <unordered_map>

#include <c10/core/ScalarType.h>

namespace adtrain::kernels {

/// A tensor's place in a graph, by which its memory is found when the graph is executed.
enum class CudnnTensor : int64_t {
  kQueries = 1,
  kKeys,
  kValues,
  kOutput,
  kStatistics,
  kSeed,
  kOffset,
  kOutputGradient,
  kQueryGradients,
  kKeyGradients,
  kValueGradients
};

/// All that the kernels of one causal attention are compiled for.
struct CudnnAttentionCase {
  /// Strides of (B, heads, tokens, head size).
  using Strides = std::array<int64_t, 4>;

  bool backward = false;
  at::ScalarType type = at::kBFloat16;
  int device = 0;
  std::array<int64_t, 4> sizes = {};  ///< B, heads, tokens, head size
  Strides in = {};                    ///< of queries, keys and values, and of their gradients
  Strides out = {};                   ///< of the output and its gradient
  bool alibi = false;
  bool deterministic = false;  ///< of a backward pass: forward ones always are
  double dropout_rate = 0;

  auto operator<=>(const CudnnAttentionCase&) const = default;
};

using CudnnMemory = std::unordered_map<int64_t, void*>;

/// Executes the case on the current stream, after it has been compiled if this process has not executed it
/// before. `memory` has every CudnnTensor that the case reads or writes. Thread-safe. Throws EnvironmentError
/// with cuDNN's own words where it supports no such case.
void execute(const CudnnAttentionCase& attention, CudnnMemory& memory);

}  // namespace adtrain::kernels
