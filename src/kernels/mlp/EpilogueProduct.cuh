#pragma once

#include <string>
#include <type_traits>

#include <cuda_runtime.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "base/Error.h"
#include "kernels/mlp/GeluProducts.h"

/// CUTLASS's persistent product of warpgroups: D (rows, columns) = epilogue(A (rows, inner) · B), where what
/// the epilogue does is a tree of visitors. Two warpgroups take tiles in turn, so that the epilogue of one
/// runs while the other multiplies ("ping-pong"). For .cu files that are compiled for sm_90a.
namespace adtrain::kernels {

namespace fusion = cutlass::epilogue::fusion;
namespace collective = cutlass::epilogue::collective;

template <class Short>
using Element = std::conditional_t<std::is_same_v<Short, __half>, cutlass::half_t, cutlass::bfloat16_t>;

constexpr auto kRounding = cutlass::FloatRoundStyle::round_to_nearest;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
using ProductTile = cute::Shape<cute::Int<kGeluTileRows>, cute::Int<kGeluTileColumns>, cute::Int<64>>;
/// Of thread blocks: two multiply different rows with the same columns of B, of which each loads half.
using ProductCluster = cute::Shape<cute::Int<2>, cute::Int<1>, cute::Int<1>>;
using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
/// What an epilogue works on at once. For each the warpgroup's four warps wait for each other twice: with the
/// library's 64 × 32 the plain product takes 5% longer, with 64 × 128 registers do not suffice.
using EpiloguePart = cute::Shape<cute::Int<64>, cute::Int<64>>;

template <class Short>
using EpilogueParts =
    collective::detail::EpilogueDescriptor<ProductTile, EpiloguePart, void, Element<Short>, EpilogueSchedule>;

template <template <class> class Formula, class To>
using Function = fusion::Sm90Compute<Formula, To, float, kRounding>;
template <template <class> class Formula, class To, class... Inputs>
using Computed = fusion::Sm90EVT<Function<Formula, To>, Inputs...>;

/// The product whose epilogue is `Tree`. B is (inner, columns).
template <class Short, class Tree>
class EpilogueProduct {
  using Of = Element<Short>;
  static constexpr int kAligned = kVectorWidth;
  using Epilogue = typename collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, ProductTile, ProductCluster, EpiloguePart, float,
      float, void, RowMajor, kAligned, Of, RowMajor, kAligned, EpilogueSchedule, Tree>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Of, RowMajor, kAligned, Of, RowMajor, kAligned,
      float, ProductTile, ProductCluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelTmaWarpSpecializedPingpong>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                      cutlass::gemm::PersistentScheduler>;
  using Product = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

 public:
  /// Of a row-major matrix of D's shape.
  static auto stride_of(const MatrixShape& shape) {
    return cutlass::make_cute_packed_stride(typename Kernel::StrideD{},
                                            {static_cast<int>(shape.rows), shape.width, 1});
  }

  /// `shape`: of D. `name`: for errors.
  static void run(const char* name, const MatrixShape& shape, int inner, const Vector* a, const Vector* b,
                  const typename Tree::Arguments& epilogue, Vector* d, int processors, cudaStream_t stream) {
    const int rows = static_cast<int>(shape.rows);
    typename Product::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {rows, shape.width, inner, 1},
        {reinterpret_cast<const Of*>(a),
         cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {rows, inner, 1}),
         reinterpret_cast<const Of*>(b),
         cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {shape.width, inner, 1})},
        {epilogue, nullptr, {}, reinterpret_cast<Of*>(d), stride_of(shape)}};
    arguments.hw_info.sm_count = processors;
    // Tiles of the same rows follow each other, so that A is read from memory once; B stays in the L2 cache.
    arguments.scheduler.raster_order = decltype(arguments.scheduler.raster_order)::AlongN;
    Product product;
    check(name, product.initialize(arguments, /*workspace=*/nullptr, stream));
    check(name, product.run(stream));
  }

 private:
  static void check(const char* name, cutlass::Status status) {
    if (status == cutlass::Status::kSuccess) return;
    throw EnvironmentError(std::string("The launch of ") + name +
                           " failed: " + cutlass::cutlassGetStatusString(status) +
                           "; see nvidia-smi for the GPU's state and for who else uses it");
  }
};

}  // namespace adtrain::kernels
