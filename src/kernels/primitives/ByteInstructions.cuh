#pragma once

#include <cstdint>

#include "kernels/primitives/WarpgroupInstructions.cuh"

/// Products of signed bytes on tensor cores, with whole sums: "mma.m16n8k32" of the PTX ISA, and "wgmma",
/// which GPUs of compute capability 9.0 alone have. Like Instructions.cuh, this header has a counterpart in
/// tests/emulation/.
namespace adtrain::kernels {

/// 16 rows × 8 columns, as in Sums.
struct WholeSums {
  int32_t value[4];
};

/// sums (16 × 8) += left (16 × 32) · right (32 × 8). A lane holds words of four neighbours that are summed
/// over, those from 4 (lane % 4) on and those 16 further: of the left operand {row, first}, {row + 8, first},
/// {row, second}, {row + 8, second} with row = lane / 4, of the right one those of column lane / 4.
__device__ inline void multiply_add_bytes(WholeSums& sums, const uint32_t (&left)[4], uint32_t right_first,
                                          uint32_t right_second) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(sums.value[0]), "+r"(sums.value[1]), "+r"(sums.value[2]), "+r"(sums.value[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_first), "r"(right_second));
}

#define ADTRAIN_WHOLE_SUMS_OF_8(i) \
  "+r"(sums[i].value[0]), "+r"(sums[i].value[1]), "+r"(sums[i].value[2]), "+r"(sums[i].value[3])
#define ADTRAIN_WHOLE_SUMS_OF_32(i)                                                           \
  ADTRAIN_WHOLE_SUMS_OF_8(i), ADTRAIN_WHOLE_SUMS_OF_8(i + 1), ADTRAIN_WHOLE_SUMS_OF_8(i + 2), \
      ADTRAIN_WHOLE_SUMS_OF_8(i + 3)
#define ADTRAIN_WHOLE_SUMS_OF_128(i)                                                             \
  ADTRAIN_WHOLE_SUMS_OF_32(i), ADTRAIN_WHOLE_SUMS_OF_32(i + 4), ADTRAIN_WHOLE_SUMS_OF_32(i + 8), \
      ADTRAIN_WHOLE_SUMS_OF_32(i + 12)

/// sums (64 × 256) += left (64 × 32) · right (32 × 256), as start_product() is. Each warp has 16 rows of the
/// sums. Both operands are given by the descriptors of tiles whose rows are what is summed over: `left` of 64
/// such rows, `right` of 256.
__device__ __forceinline__ void start_byte_product(WholeSums (&sums)[32], uint64_t left, uint64_t right) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1;"
      : ADTRAIN_WHOLE_SUMS_OF_128(0), ADTRAIN_WHOLE_SUMS_OF_128(16)
      : "l"(left), "l"(right));
}
/// See that of Sums.
__device__ __forceinline__ void take_sums(WholeSums (&sums)[32]) {
#pragma unroll
  for (int i = 0; i < 4 * 32; ++i) asm volatile("" : "+r"(sums[i / 4].value[i % 4])::"memory");
}

#undef ADTRAIN_WHOLE_SUMS_OF_128
#undef ADTRAIN_WHOLE_SUMS_OF_32
#undef ADTRAIN_WHOLE_SUMS_OF_8
}  // namespace adtrain::kernels
