#pragma once

#include "model/kernels/fused/Tile.cuh"

/// Instructions of the backward pass alone.
namespace adtrain::kernels::backward_pass {

__device__ inline float exp2_of(float value) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

/// All bits of the low half where byte `Byte` of `first` has its highest bit set, of the high half likewise
/// for `second`.
template <int Byte>
__device__ uint32_t pair_mask(uint32_t first, uint32_t second) {
  uint32_t mask;  // 8: the sign of a byte instead of the byte; 4: of the second word
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first), "r"(second), "n"(0xcc88 + 0x1111 * Byte));
  return mask;
}

/// Sums of 8 columns that start from the lane's columns of a vector in shared memory, in all rows. Read
/// twice, as that costs less than copies of registers.
__device__ inline Sums rows_of(const float* lane_columns) {
  Sums sums;
  const uint32_t address = shared_address(lane_columns);
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[0]), "=f"(sums.value[1])
               : "r"(address)
               : "memory");
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[2]), "=f"(sums.value[3])
               : "r"(address)
               : "memory");
  return sums;
}

/// Starts to copy 16 bytes from global to shared memory, or 4, or to set them to 0.
__device__ inline void start_copy_or_clear(Bf16* to, const Bf16* from, bool copied) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(copied ? 16 : 0)
               : "memory");
}
__device__ inline void start_copy_or_clear(float* to, const float* from, bool copied) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(copied ? 4 : 0)
               : "memory");
}
/// Closes the group of the copies that this thread has started since the last one.
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all groups but the last one.
__device__ inline void copies_arrived_but_last() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// 8 rows × 8 columns, twice, of which lane l % 16 names row l % 16.
__device__ inline void load_two_matrices(uint32_t (&part)[2], const Bf16* row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(part[0]), "=r"(part[1])
               : "r"(shared_address(row_of_lane))
               : "memory");
}
__device__ inline void load_two_matrices_transposed(uint32_t (&part)[2], const Bf16* row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(part[0]), "=r"(part[1])
               : "r"(shared_address(row_of_lane))
               : "memory");
}
/// sums += left · right, over 8.
__device__ inline void multiply_add_8(Sums& sums, const uint32_t (&left)[2], uint32_t right) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums.value[0]), "+f"(sums.value[1]), "+f"(sums.value[2]), "+f"(sums.value[3])
      : "r"(left[0]), "r"(left[1]), "r"(right));
}

}  // namespace adtrain::kernels::backward_pass
