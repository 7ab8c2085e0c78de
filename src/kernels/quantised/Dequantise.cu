#include "base/Launch.cuh"
#include "kernels/quantised/Codes.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kOfThread = 8;  ///< neighbouring elements of a thread, in one block: a unit
constexpr int kUnits = 4;     ///< of a thread; all are loaded at once

/// A thread's elements, stored together where all of them exist.
template <class Element>
struct alignas(kOfThread * sizeof(Element)) Elements {
  Element at[kOfThread];
};

/// A thread's units of kOfThread elements: neighbouring threads have neighbouring units, kUnits times over.
/// Of units that do not exist `count` is 0.
struct Unit {
  int64_t first;
  int count;

  __device__ static Unit of(const QuantisedWeights& weights, int number) {
    const int64_t all = weights.out_features * weights.in_features,
                  first = ((int64_t{blockIdx.x} * kUnits + number) * kThreads + threadIdx.x) * kOfThread;
    return {first, static_cast<int>(max(min(all - first, int64_t{kOfThread}), int64_t{0}))};
  }
};

/// The row of an element. 64-bit divisions take longer than all the rest, and are needed only where a unit
/// may go over the end of a row.
__device__ inline int64_t row_of(const QuantisedWeights& weights, int64_t element) {
  if (weights.in_features % kOfThread != 0) return element / weights.in_features;
  return static_cast<uint32_t>(element / kOfThread) / static_cast<uint32_t>(weights.in_features / kOfThread);
}

template <class Element>
__device__ void store(Element* output, const Unit& unit, const Elements<Element>& elements) {
  if (unit.count == kOfThread) {
    *reinterpret_cast<Elements<Element>*>(output + unit.first) = elements;
  } else {
    for (int i = 0; i < unit.count; ++i) output[unit.first + i] = elements.at[i];
  }
}

/// The codes of a unit, of type Words where all of them exist.
template <class Words>
__device__ Words codes_of(const QuantisedWeights& weights, const Unit& unit) {
  constexpr int kElementsOfByte = kOfThread / static_cast<int>(sizeof(Words));
  const auto* const bytes = static_cast<const uint8_t*>(weights.codes) + unit.first / kElementsOfByte;
  if (unit.count == kOfThread) return __ldcs(reinterpret_cast<const Words*>(bytes));
  Words words = {};
  for (int byte = 0; kElementsOfByte * byte < unit.count; ++byte)
    reinterpret_cast<uint8_t*>(&words)[byte] = bytes[byte];
  return words;
}

template <class Element, WeightForm kForm>
__global__ void __launch_bounds__(kThreads)
    dequantise_4_bits_kernel(const __grid_constant__ QuantisedWeights weights, Element* output) {
  __shared__ float code_map[16], nested_map[256];
  uint32_t codes[kUnits] = {};
  StoredScale<kForm> scales[kUnits] = {};
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const Unit unit = Unit::of(weights, i);
    if (unit.count == 0) continue;
    codes[i] = codes_of<uint32_t>(weights, unit);
    scales[i] = StoredScale<kForm>::load(weights, unit.first >> weights.block_shift);
  }
  if (threadIdx.x < 16) code_map[threadIdx.x] = __ldg(weights.code_map + threadIdx.x);
  if constexpr (kForm == WeightForm::kNestedFourBits)
    nested_map[threadIdx.x] = __ldg(weights.nested_map + threadIdx.x);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const Unit unit = Unit::of(weights, i);
    if (unit.count == 0) continue;
    const float scale = scales[i].value(weights, nested_map);
    Elements<Element> elements;
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) {  // the high half of a byte comes first
      const uint32_t code = codes[i] >> (8 * (k / 2) + (k % 2 == 0 ? 4 : 0)) & 15;
      elements.at[k] = rounded_to<Element>(code_map[code] * scale);
    }
    store(output, unit, elements);
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    dequantise_8_bits_kernel(const __grid_constant__ QuantisedWeights weights, Element* output) {
  uint2 codes[kUnits] = {};
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const Unit unit = Unit::of(weights, i);
    if (unit.count > 0) codes[i] = codes_of<uint2>(weights, unit);
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const Unit unit = Unit::of(weights, i);
    if (unit.count == 0) continue;
    int64_t row = row_of(weights, unit.first), column = unit.first - row * weights.in_features;
    float scale = row_scale(weights, row);
    const auto& own = reinterpret_cast<const Elements<int8_t>&>(codes[i]);
    Elements<Element> elements;
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) {
      elements.at[k] = rounded_to<Element>(static_cast<float>(own.at[k]) * scale);
      if (++column == weights.in_features && row + 1 < weights.out_features) {
        column = 0;
        scale = row_scale(weights, ++row);
      }
    }
    store(output, unit, elements);
  }
}

template <class Element>
void dequantise_to(const QuantisedWeights& weights, void* output, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(
      gpu::divided_up(weights.out_features * weights.in_features, int64_t{kThreads} * kUnits * kOfThread));
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
