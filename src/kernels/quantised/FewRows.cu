#include "base/Cuda.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/quantised/FewRows.cuh"
#include "kernels/quantised/QuantisedKernels.h"

namespace adtrain::kernels {
namespace {

template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers, bool kNorm, bool kLate>
__global__ void __launch_bounds__(kThreads, 2) few_rows_kernel(const __grid_constant__ QuantisedProduct job) {
  using Product = FewRows<Short, kForm, kEights, kTiles, kSharers, kNorm, kLate>;
  let_next_kernel_start();
  const typename Product::Memory memory = {dynamic_shared_memory()};
  const typename Product::Norm norm(job, memory.memory + Product::Memory::kBytes);
  Product product(job, memory, norm);
  product.begin();
  if constexpr (kNorm) norm.start(product.first_feature(), kThreads);
  memory.template fill<Short>(job.weights);
  if constexpr (kSharers > 1) product.begin_sharing();
  copies_arrived();
  __syncthreads();
  product.prepare();
  await_kernels_ahead();
  product.finish();
}

template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers, bool kNorm, bool kLate>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  using Product = FewRows<Short, kForm, kEights, kTiles, kSharers, kNorm, kLate>;
  const int64_t tiles = gpu::divided_up(product.weights.out_features, Product::kFeatures);
  launch_early_in_clusters(
      "few_rows_kernel", few_rows_kernel<Short, kForm, kEights, kTiles, kSharers, kNorm, kLate>,
      static_cast<unsigned>(kSharers * tiles), kThreads,
      Product::Memory::kBytes + Product::Norm::bytes(product), kSharers, stream, product);
}
template <class Short, WeightForm kForm, int kEights, int kTiles, int kSharers, bool kNorm>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  using Product = FewRows<Short, kForm, kEights, kTiles, kSharers, kNorm, /*kLate=*/true>;
  constexpr int64_t kEarlyColumns = int64_t{kWarps} * kSharers * Product::kEarly * kBlockColumns;
  if constexpr (kEights == 1) {
    if (product.weights.in_features <= kEarlyColumns)
      return launch<Short, kForm, kEights, kTiles, kSharers, kNorm, false>(product, stream);
  }
  return launch<Short, kForm, kEights, kTiles, kSharers, kNorm, true>(product, stream);
}
template <class Short, WeightForm kForm, int kEights, int kTiles>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  if (product.norm.weight != nullptr) return launch<Short, kForm, kEights, kTiles, 1, true>(product, stream);
  return launch<Short, kForm, kEights, kTiles, 1, false>(product, stream);
}

/// Two tiles a thread block share its inputs and its table, where multiprocessors would have several thread
/// blocks of one. Where there are few tiles of many columns, two thread blocks share a tile's columns.
template <class Short, WeightForm kForm, int kEights>
void launch_tiles(const QuantisedProduct& product, cudaStream_t stream) {
  constexpr int64_t kManyColumns = 4096;
  const int64_t tiles = gpu::divided_up(product.weights.out_features, kWarpTile);
  if (tiles > product.processors) return launch<Short, kForm, kEights, 2>(product, stream);
  if (product.weights.in_features >= kManyColumns && product.norm.weight == nullptr)
    return launch<Short, kForm, kEights, 1, 2, false>(product, stream);
  return launch<Short, kForm, kEights, 1>(product, stream);
}

template <class Short, WeightForm kForm>
void launch(const QuantisedProduct& product, cudaStream_t stream) {
  if (product.rows <= 8) return launch_tiles<Short, kForm, 1>(product, stream);
  if (product.rows <= 16) return launch_tiles<Short, kForm, 2>(product, stream);
  return launch<Short, kForm, kMostFewRows / 8, 1>(product, stream);
}

}  // namespace

void few_rows_product(const QuantisedProduct& product, cudaStream_t stream) {
  with_type(product.type, [&](auto type) {
    using Short = decltype(type);
    switch (product.weights.form) {
      case WeightForm::kFourBits:
        return launch<Short, WeightForm::kFourBits>(product, stream);
      case WeightForm::kNestedFourBits:
        return launch<Short, WeightForm::kNestedFourBits>(product, stream);
      case WeightForm::kEightBits:
        return launch<Short, WeightForm::kEightBits>(product, stream);
    }
  });
}

}  // namespace adtrain::kernels
