#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluEpilogue.cuh"
#include "kernels/mlp/GeluProducts.h"
#include "kernels/mlp/StoredRows.cuh"
#include "kernels/mlp/StoredSlopes.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class Short, GeluKind kKind, bool kDrops>
void launch(const GeluProduct& call, cudaStream_t stream) {
  const int rows = static_cast<int>(call.shape.rows), columns = call.shape.width;
  const float scale = kDrops ? call.dropout.scale : 1;
  using Epilogue = GeluEpilogue<Short, kKind, kDrops>;
  const typename Epilogue::Call epilogue = {rows,
                                            columns,
                                            reinterpret_cast<const uint32_t*>(call.bias),
                                            call.dropout.keep,
                                            0.5F * scale,
                                            1 / StoredSlopes<Short>::unit(scale),
                                            call.slopes,
                                            StoredRows::map_of(call.y, rows, columns)};
  launch_product<Short, ColumnMajor, Epilogue>("gelu_product", call.x, call.weight, call.in, epilogue,
                                               call.processors, stream);
}

}  // namespace

void gelu_product(const GeluProduct& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    using Short = decltype(type);
    if (call.kind == GeluKind::kTanh) return launch<Short, GeluKind::kTanh, false>(call, stream);
    if (call.dropout.keep != nullptr) return launch<Short, GeluKind::kExact, true>(call, stream);
    launch<Short, GeluKind::kExact, false>(call, stream);
  });
}

}  // namespace adtrain::kernels
