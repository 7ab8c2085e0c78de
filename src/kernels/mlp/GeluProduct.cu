#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/pipeline/pipeline.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluEpilogue.cuh"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// Thread blocks are persistent and have three warpgroups. A warp of the first one loads tiles of both
/// operands to shared memory, by CUTLASS's collective product, and the others take tiles of the result in
/// turn. While one multiplies, the other one works on its epilogue. That takes longer where few numbers are
/// summed up, and then both are in their epilogues at once. (In CUTLASS's "ping-pong" kernel one epilogue
/// waits for the other, as they share memory and barriers.) The two thread blocks of a cluster have different
/// rows and the same columns, of whose weights each loads half for both.
namespace adtrain::kernels {
namespace {

template <class Short>
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element<Short>, RowMajor, kVectorWidth,
    Element<Short>, ColumnMajor, kVectorWidth, float, ProductTile, ProductCluster,
    cutlass::gemm::collective::StageCount<6>, cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;

constexpr int kCluster = cute::size(ProductCluster{}), kMultiplyingGroups = 2, kGroupThreads = 128,
              kThreads = kGroupThreads * (1 + kMultiplyingGroups);

/// In which order the warpgroups multiply: the phases of the pipeline's barriers are told apart by their
/// parity alone, so that whose turn it is must be known by other means.
using Order = cutlass::OrderedSequenceBarrier</*depth=*/1, kMultiplyingGroups>;

template <class Short, bool kDrops>
struct SharedMemory {
  typename Mainloop<Short>::TensorStorage tiles;
  typename GeluEpilogue<Short, kDrops>::Memory results[kMultiplyingGroups * kGroupThreads / kWarp];
  alignas(16) typename Mainloop<Short>::PipelineStorage pipeline;
  alignas(16) Order::SharedStorage order;
};

template <class Short>
struct Call {
  typename Mainloop<Short>::Params operands;
  int inner;  ///< what is summed over
  GeluEpilogueCall epilogue;
};

/// A thread block's tiles: clusters take pairs of tiles of neighbouring rows. Tiles of the same rows follow
/// each other, so that x is read from memory once; the weights stay in the L2 cache.
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

template <class Short, bool kDrops>
__global__ void __launch_bounds__(kThreads, 1) gelu_product_kernel(const __grid_constant__ Call<Short> call) {
  using Product = Mainloop<Short>;
  using Pipeline = typename Product::MainloopPipeline;
  auto& memory = *reinterpret_cast<SharedMemory<Short, kDrops>*>(aligned_shared_memory());
  const int group = cutlass::canonical_warp_group_idx(), thread = threadIdx.x % kGroupThreads,
            warp = cutlass::canonical_warp_idx_sync() % (kGroupThreads / kWarp), lane = threadIdx.x % kWarp;
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
  GeluEpilogue<Short, kDrops> epilogue(
      call.epilogue, memory.results[(group - 1) * kGroupThreads / kWarp + warp], warp, lane);
  for (; tiles.left(); tiles.advance(kMultiplyingGroups)) {
    epilogue.begin(tiles.row() * kGeluTileRows, tiles.column() * kGeluTileColumns);
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

template <class Short, bool kDrops>
void launch(const GeluProduct& call, cudaStream_t stream) {
  using Product = Mainloop<Short>;
  using Of = Element<Short>;
  const int rows = static_cast<int>(call.shape.rows), columns = call.shape.width;
  const typename Product::Arguments operands{
      reinterpret_cast<const Of*>(call.x),
      cutlass::make_cute_packed_stride(typename Product::StrideA{}, {rows, call.in, 1}),
      reinterpret_cast<const Of*>(call.weight),
      cutlass::make_cute_packed_stride(typename Product::StrideB{}, {columns, call.in, 1})};
  const auto map_of = [&](const Vector* result) {
    return tensor_map(result, rows, int64_t{columns} * static_cast<int64_t>(sizeof(Short)),
                      GeluEpilogue<Short, kDrops>::kPartRows);
  };
  const Call<Short> kernel_call = {
      Product::to_underlying_arguments(cute::make_shape(rows, columns, call.in, 1), operands, nullptr),
      call.in,
      {rows, columns, reinterpret_cast<const uint32_t*>(call.bias), call.dropout.keep,
       kDrops ? 0.5F * call.dropout.scale : 0.5F, map_of(call.y), map_of(call.slope)}};
  const int blocks = call.processors / kCluster * kCluster;
  launch_early_in_clusters("gelu_product_kernel", gelu_product_kernel<Short, kDrops>, blocks, kThreads,
                           static_cast<int>(sizeof(SharedMemory<Short, kDrops>)), kCluster, stream,
                           kernel_call);
}

}  // namespace

void gelu_product(const GeluProduct& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    using Short = decltype(type);
    if (call.dropout.keep != nullptr) return launch<Short, true>(call, stream);
    launch<Short, false>(call, stream);
  });
}

}  // namespace adtrain::kernels
