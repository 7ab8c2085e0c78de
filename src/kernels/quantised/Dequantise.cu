#include "base/Launch.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kOfThread = 8;  ///< neighbouring elements of a thread, in one block

/// A thread's elements, stored together where all of them exist.
template <class Element>
struct alignas(kOfThread * sizeof(Element)) Elements {
  Element at[kOfThread];
};

template <class Element>
__device__ void store(Element* output, int64_t first, int count, const Elements<Element>& elements) {
  if (count == kOfThread) {
    *reinterpret_cast<Elements<Element>*>(output + first) = elements;
  } else {
    for (int i = 0; i < count; ++i) output[first + i] = elements.at[i];
  }
}

template <class Element, WeightForm kForm>
__global__ void __launch_bounds__(kThreads)
    dequantise_4_bits_kernel(const __grid_constant__ QuantisedWeights weights, Element* output) {
  __shared__ float code_map[16], nested_map[256];
  if (threadIdx.x < 16) code_map[threadIdx.x] = __ldg(weights.code_map + threadIdx.x);
  if constexpr (kForm == WeightForm::kNestedFourBits)
    nested_map[threadIdx.x] = __ldg(weights.nested_map + threadIdx.x);
  __syncthreads();
  const int64_t all = weights.out_features * weights.in_features;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kOfThread;
  if (first >= all) return;
  const int count = static_cast<int>(min(all - first, int64_t{kOfThread}));
  const float scale =
      StoredScale<kForm>::load(weights, first >> weights.block_shift).value(weights, nested_map);
  const auto* const bytes = static_cast<const uint8_t*>(weights.codes) + first / 2;
  uint32_t codes = 0;
  if (count == kOfThread) {
    codes = __ldcs(reinterpret_cast<const uint32_t*>(bytes));
  } else {
    for (int byte = 0; byte < (count + 1) / 2; ++byte) codes |= uint32_t{bytes[byte]} << 8 * byte;
  }
  Elements<Element> elements;
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    const uint32_t code = codes >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15;  // the high half comes first
    elements.at[i] = rounded_to<Element>(code_map[code] * scale);
  }
  store(output, first, count, elements);
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    dequantise_8_bits_kernel(const __grid_constant__ QuantisedWeights weights, Element* output) {
  const int64_t all = weights.out_features * weights.in_features;
  const int64_t first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kOfThread;
  if (first >= all) return;
  const int count = static_cast<int>(min(all - first, int64_t{kOfThread}));
  const auto* const codes = static_cast<const int8_t*>(weights.codes) + first;
  Elements<int8_t> own = {};
  if (count == kOfThread) {
    const uint2 words = __ldcs(reinterpret_cast<const uint2*>(codes));
    own = reinterpret_cast<const Elements<int8_t>&>(words);
  } else {
    for (int i = 0; i < count; ++i) own.at[i] = codes[i];
  }
  int64_t row = first / weights.in_features, column = first % weights.in_features;
  float scale = row_scale(weights, row);
  Elements<Element> elements;
#pragma unroll
  for (int i = 0; i < kOfThread; ++i) {
    elements.at[i] = rounded_to<Element>(static_cast<float>(own.at[i]) * scale);
    if (++column == weights.in_features && row + 1 < weights.out_features) {
      column = 0;
      scale = row_scale(weights, ++row);
    }
  }
  store(output, first, count, elements);
}

template <class Element>
void dequantise_to(const QuantisedWeights& weights, void* output, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(
      gpu::divided_up(weights.out_features * weights.in_features, int64_t{kThreads} * kOfThread));
  const auto launch = [&](const char* name, auto kernel) {
    gpu::launch(name, kernel, blocks, kThreads, 0, stream, weights, static_cast<Element*>(output));
  };
  switch (weights.form) {
    case WeightForm::kFourBits:
      return launch("dequantise_4_bits_kernel", dequantise_4_bits_kernel<Element, WeightForm::kFourBits>);
    case WeightForm::kNestedFourBits:
      return launch("dequantise_4_bits_kernel",
                    dequantise_4_bits_kernel<Element, WeightForm::kNestedFourBits>);
    case WeightForm::kEightBits:
      return launch("dequantise_8_bits_kernel", dequantise_8_bits_kernel<Element>);
  }
}

}  // namespace

void dequantise(const QuantisedWeights& weights, FloatType type, void* output, cudaStream_t stream) {
  switch (type) {
    case FloatType::kFloat:
      return dequantise_to<float>(weights, output, stream);
    case FloatType::kHalf:
      return dequantise_to<__half>(weights, output, stream);
    case FloatType::kBFloat16:
      return dequantise_to<__nv_bfloat16>(weights, output, stream);
  }
}

}  // namespace adtrain::kernels
