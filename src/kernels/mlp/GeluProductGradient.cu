#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluGradientEpilogue.cuh"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/StoredRows.cuh"
#include "kernels/mlp/StoredSlopes.cuh"
#include "kernels/primitives/ShortType.cuh"
#include "kernels/primitives/TensorMap.h"

namespace adtrain::kernels {
namespace {

template <class Short>
void launch(const GeluProductGradient& call, cudaStream_t stream) {
  const int rows = static_cast<int>(call.shape.rows), columns = call.shape.width;
  const typename GeluGradientEpilogue<Short>::Call epilogue = {
      rows,
      columns,
      StoredSlopes<Short>::unit(call.slope_scale),
      call.slopes,
      call.parts,
      tensor_map(call.d_sum, rows, int64_t{columns} * static_cast<int64_t>(sizeof(Short)),
                 StoredRows::kRows)};
  launch_product<GeluGradientEpilogue<Short>, RowMajor>("gelu_product_gradient", call.d_out, call.weight,
                                                        call.out, Short(), epilogue, call.processors, stream);
}

}  // namespace

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) { launch<decltype(type)>(call, stream); });
}

}  // namespace adtrain::kernels
