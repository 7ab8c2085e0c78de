#pragma once

#include <cstdint>

/// A transpose in registers. Like the other instructions, it has a counterpart in tests/emulation/.
namespace adtrain::kernels {

/// The lane's part of the transpose of a matrix; see Instructions.cuh for matrices and their parts.
__device__ inline uint32_t transposed_matrix(uint32_t part) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(part));
  return transposed;
}

}  // namespace adtrain::kernels
