#include <type_traits>

#include "base/Launch.cuh"
#include "kernels/block/stack/DecodingStack.h"
#include "kernels/block/stack/StackAttention.cuh"
#include "kernels/block/stack/StackProduct.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class Short, WeightForm kForm>
__global__ void __launch_bounds__(StackMemory<kForm>::kThreads, 1)
    decoding_stack_kernel(const __grid_constant__ DecodingStack job) {
  using Memory = StackMemory<kForm>;
  if (shared_address(aligned_shared_memory()) != Memory::kBegin) __trap();
  if (threadIdx.x == 0) StackStages<kForm>::set_up();
  if constexpr (Memory::kTabled) StackWeights<Short, kForm>::fill_table(job.code_map);
  Memory::fill_places(job);
  __syncthreads();
  StackStages<kForm> stages(job);
  stages.fill();
  StackProduct<Short, kForm> product(job, stages);
#pragma unroll 1
  for (int block = 0; block < job.count; ++block) {
#pragma unroll 1
    for (int matrix = kQkv; matrix < kMatrices; ++matrix) {
      if (matrix == kOut) StackAttention<Short, kForm>(job).attend(block);
      product.multiply(block, matrix);
    }
  }
}

/// Calls run(number, form) with a number of the type and a constant of the form.
template <class Run>
void with_kind(ShortType type, WeightForm form, Run run) {
  with_type(type, [&](auto number) {
    if (form == WeightForm::kEightBits) {
      run(number, std::integral_constant<WeightForm, WeightForm::kEightBits>());
    } else {
      run(number, std::integral_constant<WeightForm, WeightForm::kFourBits>());
    }
  });
}

}  // namespace

void load_decode_stack(ShortType type, WeightForm form) {
  with_kind(type, form, [](auto number, auto form) {
    gpu::check(cudaFuncSetAttribute(decoding_stack_kernel<decltype(number), form>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, StackMemory<form>::kBytes),
               "Loading decoding_stack_kernel");
  });
}

void clear_exchange(uint32_t* exchange, int64_t rows, int64_t blocks, cudaStream_t stream) {
  constexpr int kByte = kAbsent & 0xff;
  static_assert(kAbsent == kByte * 0x01010101U);
  const auto bytes = sizeof(uint32_t) * static_cast<size_t>(exchange_words(rows, blocks));
  gpu::check(cudaMemsetAsync(exchange, kByte, bytes, stream), "cudaMemsetAsync");
}

void decode_stack(const DecodingStack& stack, cudaStream_t stream) {
  with_kind(stack.type, stack.form, [&](auto number, auto form) {
    using Memory = StackMemory<form>;
    gpu::launch_at_once("decoding_stack_kernel", decoding_stack_kernel<decltype(number), form>,
                        StackShape::kThreadBlocks, Memory::kThreads, Memory::kBytes, stream, stack);
  });
}

}  // namespace adtrain::kernels
