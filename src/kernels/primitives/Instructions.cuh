#pragma once

#include <cstdint>

#include <cuda_bf16.h>

/// GPU instructions for which CUDA C++ has no function, or no efficient one. This file holds the only
/// assembly of the fused kernels. tests/emulation/ replaces it with a header that does the same on a CPU.
///
/// Addresses in shared memory are 32-bit numbers; see shared_address(). Matrices are 8 × 8 with 16-bit
/// elements. `part` is what a lane holds of each matrix, as in "mma" and "ldmatrix" of the PTX ISA.
namespace adtrain::kernels {

using Bf16 = __nv_bfloat16;

/// The dynamic shared memory of the launch, aligned to 128 bytes.
__device__ inline char* dynamic_shared_memory() {
  extern __shared__ __align__(128) char dynamic_memory[];
  return dynamic_memory;
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Reads the lane's number again. The compiler cannot move computations that use it ahead of this read. A
/// part of a kernel that begins with this read does not keep the lane's addresses in registers before.
__device__ inline unsigned lane_anew() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Products: sums (16 × 8) += left · right.

/// The product sums over 16: left (16 × 16), right (16 × 8).
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                                    uint32_t right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}
/// The product sums over 8: left (16 × 8), as its upper and its lower 8 rows.
__device__ inline void multiply_add_8(float (&sums)[4], uint32_t left_upper, uint32_t left_lower,
                                      uint32_t right) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left_upper), "r"(left_lower), "r"(right));
}

// Between shared memory and registers.

/// Loads four matrices. Lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&part)[4], uint32_t row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(row_of_lane)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&part)[4], uint32_t row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
               : "r"(row_of_lane)
               : "memory");
}
/// Loads two matrices, whose rows' addresses the first 16 lanes pass.
__device__ inline void load_two_matrices(uint32_t (&part)[2], uint32_t row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(part[0]), "=r"(part[1])
               : "r"(row_of_lane)
               : "memory");
}
__device__ inline void load_two_matrices_transposed(uint32_t (&part)[2], uint32_t row_of_lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(part[0]), "=r"(part[1])
               : "r"(row_of_lane)
               : "memory");
}
__device__ inline void store_matrices(uint32_t row_of_lane, const uint32_t (&part)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row_of_lane),
               "r"(part[0]), "r"(part[1]), "r"(part[2]), "r"(part[3])
               : "memory");
}

/// values = {pair[0], pair[1], pair[0], pair[1]}. The pair is loaded twice on purpose: an accumulator is four
/// neighbouring registers, and copying the pair costs more than loading it again.
__device__ inline void load_pair_twice(float (&values)[4], const float* pair) {
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(values[0]), "=f"(values[1])
               : "r"(shared_address(pair))
               : "memory");
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(values[2]), "=f"(values[3])
               : "r"(shared_address(pair))
               : "memory");
}

// Asynchronous copies from global memory to shared memory.

/// Starts to copy 16 bytes; see copies_arrived().
__device__ inline void start_copy(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// Starts to copy 4 bytes.
__device__ inline void start_copy_word(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// Start to copy 16 bytes (bf16) or 4 (float). Without `copied` the destination is set to 0.
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
/// Waits for all copies that this thread has started. For the copies of other threads, a barrier must follow.
__device__ inline void copies_arrived() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
/// Puts the copies that this thread has started since the last call into one group.
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all groups of copies except the last ones.
template <int Groups = 1>
__device__ void copies_arrived_but_last() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

// Global memory.

/// Prefetches the cache line of this address into L2.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
/// Stores a pair where `condition` holds, without a branch.
__device__ inline void store_if(bool condition, Bf16* to, uint32_t pair) {
  asm volatile(
      "{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.b32 [%1], %2; }" ::"r"(static_cast<int>(condition)),
      "l"(to), "r"(pair)
      : "memory");
}

/// Stores 16 bytes at once where `condition` holds, without a branch.
__device__ inline void store_if(bool condition, Bf16* to, const uint32_t (&pairs)[4]) {
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.v4.b32 [%1], {%2,%3,%4,%5}; }" ::"r"(
                   static_cast<int>(condition)),
               "l"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

/// A barrier for a group of `threads` threads (a multiple of 32). No other group may use the barrier `id` (1
/// … 15).
__device__ inline void group_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// The same where warps come from different places of the code, for which synccheck reports "bar.sync".
__device__ inline void group_barrier_of_roles(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Counts a number in shared memory on; returns what it was. CUDA's atomicAdd() would first find out which of
/// the warp's threads count with this one.
__device__ inline int count_on(int* number) {
  int before;
  asm volatile("atom.shared.add.s32 %0, [%1], 1;" : "=r"(before) : "r"(shared_address(number)) : "memory");
  return before;
}

// Arithmetic.

__device__ inline float exp2_of(float value) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}
__device__ inline float inverse_of(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}
__device__ inline float tanh_of(float value) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

/// A mask for a pair of 16-bit values: the low half is all ones where the highest bit of byte `byte` of
/// `first` is set, the high half likewise for `second`.
__device__ inline uint32_t pair_mask(uint32_t first, uint32_t second, int byte) {
  uint32_t mask;  // nibble: 8 replicates the sign of a byte, 4 selects the second word
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first), "r"(second), "r"(0xcc88 + 0x1111 * byte));
  return mask;
}

template <int Byte>
__device__ uint32_t pair_mask(uint32_t first, uint32_t second) {
  uint32_t mask;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first), "r"(second), "n"(0xcc88 + 0x1111 * Byte));
  return mask;
}

// Pairs of 16-bit values. Each result is rounded once.

__device__ inline __nv_bfloat162 as_bf162(uint32_t pair) {
  return reinterpret_cast<__nv_bfloat162&>(pair);
}
__device__ inline uint32_t as_pair(__nv_bfloat162 both) {
  return reinterpret_cast<uint32_t&>(both);
}
__device__ inline uint32_t multiplied(uint32_t left, uint32_t right) {
  return as_pair(__hmul2(as_bf162(left), as_bf162(right)));
}
__device__ inline uint32_t multiplied_plus(uint32_t left, uint32_t right, uint32_t added) {
  return as_pair(__hfma2(as_bf162(left), as_bf162(right), as_bf162(added)));
}
__device__ inline uint32_t negative(uint32_t pair) {
  return as_pair(__hneg2(as_bf162(pair)));
}

}  // namespace adtrain::kernels
