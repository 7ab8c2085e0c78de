#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluGradientEpilogue.cuh"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/StoredRows.cuh"
#include "kernels/mlp/StoredSlopes.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class Short>
void launch(const GeluProductGradient& call, cudaStream_t stream) {
  const int rows = static_cast<int>(call.shape.rows), columns = call.shape.width;
  const typename GeluGradientEpilogue<Short>::Call epilogue = {
      rows,        columns,    StoredSlopes<Short>::unit(call.slope_scale),
      call.slopes, call.parts, StoredRows::map_of(call.d_sum, rows, columns)};
  launch_product<Short, RowMajor, GeluGradientEpilogue<Short>>(
      "gelu_product_gradient", call.d_out, call.weight, call.out, epilogue, call.processors, stream);
}

}  // namespace

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) { launch<decltype(type)>(call, stream); });
}

}  // namespace adtrain::kernels
