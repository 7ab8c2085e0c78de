#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/WarpgroupInstructions.cuh"

/// More of what WarpgroupInstructions.cuh has, likewise with a counterpart in tests/emulation/: products of
/// either 16-bit type with up to 128 columns.
namespace adtrain::kernels {

// The operands of 32 columns of sums, four of these from `i` on.
#define ADTRAIN_SUMS_OF_8(i) \
  "+f"(sums[i].value[0]), "+f"(sums[i].value[1]), "+f"(sums[i].value[2]), "+f"(sums[i].value[3])
#define ADTRAIN_SUMS_OF_32(i) \
  ADTRAIN_SUMS_OF_8(i), ADTRAIN_SUMS_OF_8(i + 1), ADTRAIN_SUMS_OF_8(i + 2), ADTRAIN_SUMS_OF_8(i + 3)
#define ADTRAIN_PRODUCT_OF_128(type)                                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type                                  \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                    \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "            \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "            \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "           \
               "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"                                                      \
               : ADTRAIN_SUMS_OF_32(0), ADTRAIN_SUMS_OF_32(4), ADTRAIN_SUMS_OF_32(8), ADTRAIN_SUMS_OF_32(12) \
               : "r"(left.part[0]), "r"(left.part[1]), "r"(left.part[2]), "r"(left.part[3]), "l"(right))

/// sums (64 × 8 `Count`) += left (64 × 16) · right (16 × 8 `Count`), of elements of type Short; `Count` is 8
/// or 16. Each warp has 16 rows of the sums and of the left operand. `right`: a matrix descriptor;
/// neighbours in memory are rows of the right operand.
template <class Short, int Count>
__device__ __forceinline__ void start_wide_product(Sums (&sums)[Count], const LeftFragment& left,
                                                   uint64_t right) {
  static_assert(Count == 8 || Count == 16);
  if constexpr (Count <= 8) {
    start_product<Short, false>(sums, left, right);
  } else if constexpr (std::is_same_v<Short, __half>) {
    ADTRAIN_PRODUCT_OF_128("f16");
  } else {
    ADTRAIN_PRODUCT_OF_128("bf16");
  }
}

#undef ADTRAIN_PRODUCT_OF_128
#undef ADTRAIN_SUMS_OF_32
#undef ADTRAIN_SUMS_OF_8

}  // namespace adtrain::kernels
