#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

#include "kernels/primitives/Tile.cuh"

/// Instructions of a warpgroup, four neighbouring warps: "wgmma" of the PTX ISA, which GPUs of compute
/// capability 9.0 alone have. tests/emulation/ replaces this header, as it does Instructions.cuh.
///
/// Products are asynchronous. Between start_product() and the products_arrived() that waits for it, nothing
/// may touch its sums, change its left operand (the compiler lets it be read, which the PTX ISA does not
/// promise) or write to the shared memory that it reads. Functions that
/// start products are inlined by force: sums that the compiler keeps in memory make a kernel eight times as
/// slow, and it says nothing (`nvcc -Xptxas -warn-lmem-usage` does).
namespace adtrain::kernels {

/// What follows reads registers and shared memory that the warps have written before. It comes before the
/// first start_product() and wherever sums or left operands have been written since.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/// Puts the products started since the last call into one group.
__device__ inline void close_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits for all groups of products except the last `Left`. Sums of the products must be passed to
/// take_sums() before they are read.
template <int Left>
__device__ inline void products_arrived() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}
/// Keeps the compiler from reading these sums before products_arrived(), and from writing them after
/// begin_products().
template <int Count>
__device__ void take_sums(Sums (&sums)[Count]) {
#pragma unroll
  for (int i = 0; i < 4 * Count; ++i) asm volatile("" : "+f"(sums[i / 4].value[i % 4])::"memory");
}

/// Keeps left operands in their registers until here, which must come after the products_arrived() that waits
/// for their products: the compiler takes a register to be free once its product has started.
template <int Count>
__device__ void hold(LeftFragment (&left)[Count]) {
#pragma unroll
  for (int i = 0; i < 4 * Count; ++i) asm volatile("" : "+r"(left[i / 4].part[i % 4])::"memory");
}

/// Makes what this thread has written to shared memory, copies that have arrived too, visible to products. A
/// barrier must follow.
__device__ inline void show_to_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// One instruction with 64, 32 or 16 columns of sums. TYPE: that of the operands; OPERANDS: their names in
/// the assembly, and the constants behind them.
#define ADTRAIN_PRODUCT_OF_64(TYPE, OPERANDS, ...)                                                      \
  asm volatile(                                                                                         \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                       \
      " "                                                                                               \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " OPERANDS ";"  \
      : "+f"(sums[0].value[0]), "+f"(sums[0].value[1]), "+f"(sums[0].value[2]), "+f"(sums[0].value[3]), \
        "+f"(sums[1].value[0]), "+f"(sums[1].value[1]), "+f"(sums[1].value[2]), "+f"(sums[1].value[3]), \
        "+f"(sums[2].value[0]), "+f"(sums[2].value[1]), "+f"(sums[2].value[2]), "+f"(sums[2].value[3]), \
        "+f"(sums[3].value[0]), "+f"(sums[3].value[1]), "+f"(sums[3].value[2]), "+f"(sums[3].value[3]), \
        "+f"(sums[4].value[0]), "+f"(sums[4].value[1]), "+f"(sums[4].value[2]), "+f"(sums[4].value[3]), \
        "+f"(sums[5].value[0]), "+f"(sums[5].value[1]), "+f"(sums[5].value[2]), "+f"(sums[5].value[3]), \
        "+f"(sums[6].value[0]), "+f"(sums[6].value[1]), "+f"(sums[6].value[2]), "+f"(sums[6].value[3]), \
        "+f"(sums[7].value[0]), "+f"(sums[7].value[1]), "+f"(sums[7].value[2]), "+f"(sums[7].value[3])  \
      : __VA_ARGS__)
#define ADTRAIN_PRODUCT_OF_32(TYPE, OPERANDS, ...)                                                      \
  asm volatile(                                                                                         \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                       \
      " "                                                                                               \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, " OPERANDS ";"           \
      : "+f"(sums[0].value[0]), "+f"(sums[0].value[1]), "+f"(sums[0].value[2]), "+f"(sums[0].value[3]), \
        "+f"(sums[1].value[0]), "+f"(sums[1].value[1]), "+f"(sums[1].value[2]), "+f"(sums[1].value[3]), \
        "+f"(sums[2].value[0]), "+f"(sums[2].value[1]), "+f"(sums[2].value[2]), "+f"(sums[2].value[3]), \
        "+f"(sums[3].value[0]), "+f"(sums[3].value[1]), "+f"(sums[3].value[2]), "+f"(sums[3].value[3])  \
      : __VA_ARGS__)
#define ADTRAIN_PRODUCT_OF_16(TYPE, OPERANDS, ...)                                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE               \
               " "                                                                       \
               "{%0, %1, %2, %3, %4, %5, %6, %7}, " OPERANDS ";"                         \
               : "+f"(sums[0].value[0]), "+f"(sums[0].value[1]), "+f"(sums[0].value[2]), \
                 "+f"(sums[0].value[3]), "+f"(sums[1].value[0]), "+f"(sums[1].value[1]), \
                 "+f"(sums[1].value[2]), "+f"(sums[1].value[3])                          \
               : __VA_ARGS__)

/// sums (64 × 64) += left (64 × 16) · right (16 × 64), of elements of type `Short`. Each warp has 16 rows of
/// the sums and of the left operand. `right`: the operand's matrix descriptor. `Across`: neighbours in memory
/// are columns of the right operand, and else rows.
template <class Short, bool Across>
__device__ void start_product(Sums (&sums)[8], const LeftFragment& left, uint64_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_64("f16", "{%32, %33, %34, %35}, %36, 1, 1, 1, %37", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  } else {
    ADTRAIN_PRODUCT_OF_64("bf16", "{%32, %33, %34, %35}, %36, 1, 1, 1, %37", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  }
}
/// The same with a left operand in shared memory, given by its descriptor. `Down`: neighbours in memory are
/// rows of the left operand, and else columns.
template <class Short, bool Down, bool Across>
__device__ void start_product(Sums (&sums)[8], uint64_t left, uint64_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_64("f16", "%32, %33, 1, 1, 1, %34, %35", "l"(left), "l"(right), "n"(Down ? 1 : 0),
                          "n"(Across ? 1 : 0));
  } else {
    ADTRAIN_PRODUCT_OF_64("bf16", "%32, %33, 1, 1, 1, %34, %35", "l"(left), "l"(right), "n"(Down ? 1 : 0),
                          "n"(Across ? 1 : 0));
  }
}
/// That one with 32 columns.
template <class Short, bool Down, bool Across>
__device__ void start_product(Sums (&sums)[4], uint64_t left, uint64_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_32("f16", "%16, %17, 1, 1, 1, %18, %19", "l"(left), "l"(right), "n"(Down ? 1 : 0),
                          "n"(Across ? 1 : 0));
  } else {
    ADTRAIN_PRODUCT_OF_32("bf16", "%16, %17, 1, 1, 1, %18, %19", "l"(left), "l"(right), "n"(Down ? 1 : 0),
                          "n"(Across ? 1 : 0));
  }
}
/// The first one with 32 columns.
template <class Short, bool Across>
__device__ void start_product(Sums (&sums)[4], const LeftFragment& left, uint64_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_32("f16", "{%16, %17, %18, %19}, %20, 1, 1, 1, %21", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  } else {
    ADTRAIN_PRODUCT_OF_32("bf16", "{%16, %17, %18, %19}, %20, 1, 1, 1, %21", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  }
}
/// That one with 16 columns.
template <class Short, bool Across>
__device__ void start_product(Sums (&sums)[2], const LeftFragment& left, uint64_t right) {
  if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_16("f16", "{%8, %9, %10, %11}, %12, 1, 1, 1, %13", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  } else {
    ADTRAIN_PRODUCT_OF_16("bf16", "{%8, %9, %10, %11}, %12, 1, 1, 1, %13", "r"(left.part[0]),
                          "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right),
                          "n"(Across ? 1 : 0));
  }
}

#undef ADTRAIN_PRODUCT_OF_64
#undef ADTRAIN_PRODUCT_OF_32
#undef ADTRAIN_PRODUCT_OF_16

}  // namespace adtrain::kernels
