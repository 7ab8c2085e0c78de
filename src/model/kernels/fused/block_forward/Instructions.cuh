#pragma once

#include <cstdint>

#include "model/kernels/fused/Tile.cuh"

/// Instructions of the GPU that the block's forward pass needs beyond those of Tile.cuh.
namespace adtrain::kernels::forward_pass {

__device__ inline float exp2_of(float value) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}
__device__ inline float tanh_of(float value) {
  asm("tanh.approx.f32 %0, %0;" : "+f"(value));
  return value;
}

__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

/// sums += left · right, over 8: the first or, which = 1, second 8 columns of `left`.
__device__ inline void multiply_add_8(Sums& sums, const LeftFragment& left, int which, uint32_t right) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(sums.value[0]), "+f"(sums.value[1]), "+f"(sums.value[2]), "+f"(sums.value[3])
      : "r"(left.part[2 * which]), "r"(left.part[2 * which + 1]), "r"(right));
}

/// The lane's number, read anew: what is computed from it cannot be computed ahead of this. Each part of the
/// kernel begins with it, or all the lane's places in all tiles would stand in registers throughout.
__device__ inline unsigned lane_anew() {
  unsigned lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Accumulators that begin with a bias, `pair` being the lane's two elements of it. It is read once for each
/// row: accumulators are neighbouring registers, and to copy a pair from one to another costs more than to
/// read it.
__device__ inline Sums sums_from(const float* pair) {
  Sums sums;
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[0]), "=f"(sums.value[1])
               : "r"(shared_address(pair)));
  asm volatile("ld.volatile.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(sums.value[2]), "=f"(sums.value[3])
               : "r"(shared_address(pair)));
  return sums;
}

}  // namespace adtrain::kernels::forward_pass
