#include "base/Launch.cuh"
#include "kernels/block/stack/DecodingStack.h"
#include "kernels/block/stack/StackAttention.cuh"
#include "kernels/block/stack/StackProduct.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class Short>
__global__ void __launch_bounds__(StackMemory::kThreads, 1)
    decoding_stack_kernel(const __grid_constant__ DecodingStack job) {
  using Memory = StackMemory;
  if (shared_address(aligned_shared_memory()) != Memory::kBegin) __trap();
  if (threadIdx.x == 0) StackStages::set_up();
  StackWeights::fill_table<Short>(job.code_map);
  Memory::fill_places(job);
  __syncthreads();
  StackStages stages(job);
  for (int started = 0; started < Memory::kStages; started += 4) stages.refill(4);
  StackProduct<Short> product(job, stages);
#pragma unroll 1
  for (int block = 0; block < job.count; ++block) {
#pragma unroll 1
    for (int matrix = kQkv; matrix < kMatrices; ++matrix) {
      if (matrix == kOut) StackAttention<Short>(job).attend(block);
      product.multiply(block, matrix);
    }
  }
}

template <class Short>
void load() {
  gpu::check(cudaFuncSetAttribute(decoding_stack_kernel<Short>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  StackMemory::kBytes),
             "Loading decoding_stack_kernel");
}

}  // namespace

void load_decode_stack(ShortType type) {
  with_type(type, [](auto number) { load<decltype(number)>(); });
}

void clear_exchange(uint32_t* exchange, int64_t rows, int64_t blocks, cudaStream_t stream) {
  constexpr int kByte = kAbsent & 0xff;
  static_assert(kAbsent == kByte * 0x01010101U);
  const auto bytes = sizeof(uint32_t) * static_cast<size_t>(exchange_words(rows, blocks));
  gpu::check(cudaMemsetAsync(exchange, kByte, bytes, stream), "cudaMemsetAsync");
}

void decode_stack(const DecodingStack& stack, cudaStream_t stream) {
  with_type(stack.type, [&](auto type) {
    gpu::launch_at_once("decoding_stack_kernel", decoding_stack_kernel<decltype(type)>,
                        StackShape::kThreadBlocks, StackMemory::kThreads, StackMemory::kBytes, stream, stack);
  });
}

}  // namespace adtrain::kernels
