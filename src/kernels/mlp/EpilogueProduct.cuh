#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/pipeline/pipeline.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "kernels/mlp/GeluProducts.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/Tile.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// The product A (rows, inner) · B of 16-bit matrices, whose sums go to an epilogue of ours. For .cu files
/// that are compiled for sm_90a.
///
/// Thread blocks are persistent and have three warpgroups. A warp of the first one loads tiles of both
/// operands to shared memory, by CUTLASS's collective product, and the others take tiles of the result in
/// turn. While one multiplies, the other one works on its epilogue. That may take longer where few numbers
/// are summed up, and then both are in their epilogues at once. (In CUTLASS's "ping-pong" kernel one epilogue
/// waits for the other, as they share memory and barriers.) The two thread blocks of a cluster have different
/// rows and the same columns, of whose part of B each loads half for both.
namespace adtrain::kernels {

template <class Short>
using Element = std::conditional_t<std::is_same_v<Short, __half>, cutlass::half_t, cutlass::bfloat16_t>;

using ProductTile = cute::Shape<cute::Int<kGeluTileRows>, cute::Int<kGeluTileColumns>, cute::Int<64>>;
using ProductCluster = cute::Shape<cute::Int<2>, cute::Int<1>, cute::Int<1>>;

/// B is (columns, inner) in memory where its order is ColumnMajor, (inner, columns) where it is RowMajor.
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

template <class Short, class OrderOfB>
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element<Short>, RowMajor, kVectorWidth,
    Element<Short>, OrderOfB, kVectorWidth, float, ProductTile, ProductCluster,
    cutlass::gemm::collective::StageCount<6>, cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;

constexpr int kCluster = cute::size(ProductCluster{}), kMultiplyingGroups = 2,
              kGroupThreads = kGeluTileWarps * kWarp, kThreads = kGroupThreads * (1 + kMultiplyingGroups);

/// In which order the warpgroups multiply: the phases of the pipeline's barriers are told apart by their
/// parity alone, so that whose turn it is must be known by other means.
using Order = cutlass::OrderedSequenceBarrier</*depth=*/1, kMultiplyingGroups>;

template <class Product, class Epilogue>
struct ProductMemory {
  typename Product::TensorStorage tiles;
  typename Epilogue::Memory of_groups[kMultiplyingGroups];
  alignas(16) typename Product::PipelineStorage pipeline;
  alignas(16) Order::SharedStorage order;
};

template <class Product, class Epilogue>
struct ProductCall {
  typename Product::Params operands;
  int inner;
  typename Epilogue::Call epilogue;
};

/// A thread block's tiles: clusters take pairs of tiles of neighbouring rows. Tiles of the same rows follow
/// each other, so that A is read from memory once; B stays in the L2 cache.
class Tiles {
 public:
  __device__ Tiles(int rows, int columns)
      : of_columns_((columns + kGeluTileColumns - 1) / kGeluTileColumns),
        pairs_((rows + kCluster * kGeluTileRows - 1) / (kCluster * kGeluTileRows) * of_columns_),
        pair_(static_cast<int>(blockIdx.x) / kCluster) {}

  __device__ bool left() const { return pair_ < pairs_; }
  __device__ void advance(int count) { pair_ += count * static_cast<int>(gridDim.x) / kCluster; }
  __device__ int row() const {
    return pair_ / of_columns_ * kCluster + static_cast<int>(blockIdx.x) % kCluster;
  }
  __device__ int column() const { return pair_ % of_columns_; }

 private:
  int of_columns_, pairs_, pair_;
};

template <class Product, class Epilogue>
__global__ void __launch_bounds__(kThreads, 1)
    epilogue_product_kernel(const __grid_constant__ ProductCall<Product, Epilogue> call) {
  using Pipeline = typename Product::MainloopPipeline;
  auto& memory = *reinterpret_cast<ProductMemory<Product, Epilogue>*>(aligned_shared_memory());
  const int group = cutlass::canonical_warp_group_idx(), thread = threadIdx.x % kGroupThreads,
            warp = cutlass::canonical_warp_idx_sync() % kGeluTileWarps, lane = threadIdx.x % kWarp;
  const bool loads = group == 0 && warp == 0;
  if (threadIdx.x == 0) Product::prefetch_tma_descriptors(call.operands);

  typename Pipeline::Params roles;
  if (loads) roles.role = Pipeline::ThreadCategory::Producer;
  if (group > 0) roles.role = Pipeline::ThreadCategory::Consumer;
  roles.is_leader = thread == 0;
  roles.num_consumers = kGroupThreads;  // of a stage: that of one tile
  roles.num_producers = Product::NumProducerThreadEvents;
  roles.transaction_bytes = call.operands.tma_transaction_bytes;
  Pipeline pipeline(memory.pipeline, roles, ProductCluster{});
  Order order(memory.order, {static_cast<uint32_t>(group - 1), kGroupThreads});
  cute::cluster_arrive_relaxed();

  Product product;
  const auto operands = product.load_init(
      cute::make_shape(call.epilogue.rows, call.epilogue.columns, call.inner, 1), call.operands);
  const int stages = cute::size<3>(cute::get<0>(operands));  // of a tile
  Tiles tiles(call.epilogue.rows, call.epilogue.columns);
  cute::cluster_wait();  // all barriers have been set up
  await_kernels_ahead();

  if (group == 0) {
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (!loads) return;
    auto place = cutlass::make_producer_start_state<Pipeline>();
    for (; tiles.left(); tiles.advance(1)) {
      product.load(call.operands, pipeline, place, operands,
                   cute::make_coord(tiles.row(), tiles.column(), cute::_, 0),
                   cute::make_coord_iterator(cute::shape<3>(cute::get<0>(operands))), stages, lane,
                   cute::block_rank_in_cluster(), memory.tiles);
      place.advance(stages);
    }
    product.load_tail(pipeline, place);  // the cluster's other thread block has read what was loaded for it
    return;
  }
  cutlass::arch::warpgroup_reg_alloc<232>();
  typename Product::PipelineState place;
  if (group == kMultiplyingGroups) {  // begins with the second tile
    tiles.advance(1);
    place.advance(stages);
  }
  Epilogue epilogue(call.epilogue, memory.of_groups[group - 1], warp, lane);
  for (; tiles.left(); tiles.advance(kMultiplyingGroups)) {
    epilogue.begin(tiles.row(), tiles.column());
    auto sums = cute::partition_fragment_C(typename Product::TiledMma{}, cute::take<0, 2>(ProductTile{}));
    order.wait();
    product.mma(pipeline, place, sums, stages, thread, memory.tiles, call.operands);
    order.arrive();
    product.mma_tail(pipeline, place, stages);
    place.advance(kMultiplyingGroups * stages);
    epilogue.store(sums);
  }
  epilogue.finish();
}

/// Launches it. `name`: for errors. `epilogue` has the rows and columns of the result.
template <class Short, class OrderOfB, class Epilogue>
void launch_product(const char* name, const Vector* a, const Vector* b, int inner,
                    const typename Epilogue::Call& epilogue, int processors, cudaStream_t stream) {
  using Product = Mainloop<Short, OrderOfB>;
  using Of = Element<Short>;
  constexpr int kMostBytes = 227 * 1024, kMemory = sizeof(ProductMemory<Product, Epilogue>);
  static_assert(kMemory <= kMostBytes, "what a thread block of compute capability 9.0 has at most");
  const int rows = epilogue.rows, columns = epilogue.columns;
  const typename Product::Arguments operands{
      reinterpret_cast<const Of*>(a),
      cutlass::make_cute_packed_stride(typename Product::StrideA{}, {rows, inner, 1}),
      reinterpret_cast<const Of*>(b),
      cutlass::make_cute_packed_stride(typename Product::StrideB{}, {columns, inner, 1})};
  const ProductCall<Product, Epilogue> call = {
      Product::to_underlying_arguments(cute::make_shape(rows, columns, inner, 1), operands, nullptr), inner,
      epilogue};
  launch_early_in_clusters(name, epilogue_product_kernel<Product, Epilogue>, processors / kCluster * kCluster,
                           kThreads, kMemory, kCluster, stream, call);
}

}  // namespace adtrain::kernels
