#pragma once

#include <cstdint>

#include <driver_types.h>

#include "kernels/primitives/FloatType.h"
#include "kernels/primitives/HashedDropout.h"

namespace adtrain::kernels {

/// A call of dropout of a dense matrix whose mask is not stored. Pointers are to the GPU's memory.
struct RowDropout {
  int64_t rows;
  int width;
  int64_t rows_of_sequence;
  FloatType type;
  DropoutRate rate;
  const int64_t* seed;
  uint64_t place;            ///< of the call in the network
  const int64_t* sequences;  ///< (rows / rows_of_sequence): their numbers in the global batch
};

/// y = dropout(x), and from the gradient of y to that of x. Returns at once; throws EnvironmentError where
/// the kernel cannot be launched.
void drop_rows(const void* x, const RowDropout& dropout, void* y, cudaStream_t stream);

}  // namespace adtrain::kernels
