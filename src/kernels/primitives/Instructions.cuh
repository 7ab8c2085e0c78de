#pragma once

#include <cstdint>

#include <cuda_bf16.h>

/// Instructions of the GPU that CUDA C++ has no name for, or no good one: the only assembly of the fused
/// kernels. tests/emulation/ has a header in this one's place that does the same on a CPU.
///
/// Addresses in shared memory are 32-bit numbers, see shared_address(). Matrices are 8 × 8 of 16 bit; `part`
/// is what a lane holds of each, as in "mma" and "ldmatrix" of the PTX ISA.
namespace adtrain::kernels {

using Bf16 = __nv_bfloat16;

/// The shared memory whose size the launch gives, 128-byte aligned.
__device__ inline char* dynamic_shared_memory() {
  extern __shared__ __align__(128) char dynamic_memory[];
  return dynamic_memory;
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The lane's number, read anew: what is computed from it cannot be computed ahead of this. Where a part of a
/// kernel begins with it, the lane's places in all tiles do not stand in registers throughout.
__device__ inline unsigned lane_anew() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

// Products: sums (16 × 8) += left · right.

/// Over 16: left (16 × 16), right (16 × 8).
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                                    uint32_t right_high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}
/// Over 8: left (16 × 8), its upper rows and its lower ones.
__device__ inline void multiply_add_8(float (&sums)[4], uint32_t left_upper, uint32_t left_lower,
                                      uint32_t right) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left_upper), "r"(left_lower), "r"(right));
}

// Between shared memory and registers.

/// Four matrices. Lane l names where row l % 8 of matrix l / 8 begins.
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
/// Two matrices, named by the first 16 lanes.
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

/// The transpose of a matrix in registers.
__device__ inline uint32_t transposed(uint32_t part) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(part));
  return result;
}

/// {pair[0], pair[1], pair[0], pair[1]}, each read for itself: accumulators are neighbouring registers, and
/// to copy a pair from one to another costs more than to read it again.
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

// From global memory to shared memory, while the thread goes on.

/// Starts to copy 16 bytes; see copies_arrived().
__device__ inline void start_copy(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// 4 bytes.
__device__ inline void start_copy_word(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
/// Starts to copy 16 bytes, or 4, or to set them to 0.
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
/// Waits for all copies that this thread has started. Other threads' come with the barrier after it.
__device__ inline void copies_arrived() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
/// Closes the group of the copies that this thread has started since the last one.
__device__ inline void close_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits for all groups but the last one.
__device__ inline void copies_arrived_but_last() {
  asm volatile("cp.async.wait_group 1;" ::: "memory");
}

// Global memory.

/// Asks for the cache line of this address in global memory.
__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
/// Where `condition` holds, without a branch.
__device__ inline void store_if(bool condition, Bf16* to, uint32_t pair) {
  asm volatile(
      "{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.b32 [%1], %2; }" ::"r"(static_cast<int>(condition)),
      "l"(to), "r"(pair)
      : "memory");
}

/// Likewise 16 bytes, at once.
__device__ inline void store_if(bool condition, Bf16* to, const uint32_t (&pairs)[4]) {
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0; @p st.global.v4.b32 [%1], {%2,%3,%4,%5}; }" ::"r"(
                   static_cast<int>(condition)),
               "l"(to), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

/// Waits for the other threads of a group of `threads` (a multiple of 32), which has the barrier `id` (1 …
/// 15) to itself.
__device__ inline void group_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
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

/// All bits of the low half where byte `byte` of `first` has its highest bit set, of the high half likewise
/// for `second`.
__device__ inline uint32_t pair_mask(uint32_t first, uint32_t second, int byte) {
  uint32_t mask;  // 8: the sign of a byte instead of the byte; 4: of the second word
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first), "r"(second), "r"(0xcc88 + 0x1111 * byte));
  return mask;
}

template <int Byte>
__device__ uint32_t pair_mask(uint32_t first, uint32_t second) {
  uint32_t mask;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(mask) : "r"(first), "r"(second), "n"(0xcc88 + 0x1111 * Byte));
  return mask;
}

// Pairs of 16-bit values, each value rounded once.

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
