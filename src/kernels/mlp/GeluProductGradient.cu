#include "kernels/mlp/ColumnSums.cuh"
#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

/// The gradient of gelu's argument x from that of its value.
template <class>
struct GeluGradient;
template <int kCount>
struct GeluGradient<cutlass::Array<float, kCount>> {
  using Values = cutlass::Array<float, kCount>;
  CUTLASS_DEVICE Values operator()(const Values& gradient, const Values& x) const {
    Values d_x;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) d_x[i] = gradient[i] * GeluForm(x[i]).slope(x[i]);
    return d_x;
  }
};

template <class Short>
void launch(const GeluProductGradient& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Load = collective::detail::AuxLoadDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using Before = fusion::Sm90AuxLoad<Load::Stages, typename Load::EpilogueTile, Of, typename Load::Stride,
                                     typename Load::SmemLayoutAtom, typename Load::CopyOpS2R>;
  using Gradient = Computed<GeluGradient, float, fusion::Sm90AccFetch, Before>;
  using Tree = Computed<cutlass::epilogue::thread::Identity, Of,
                        fusion::Sm90EVT<ColumnSums<kGeluTileColumns>, Gradient>>;
  using Product = EpilogueProduct<Short, RowMajor, Tree>;
  const typename Before::Arguments before{reinterpret_cast<const Of*>(call.before), Of(0),
                                          Product::stride_of(call.shape)};
  Product::run("gelu_product_gradient", call.shape, call.out, call.d_out, call.weight,
               {{{{}, before, {}}, {call.parts}}, {}}, call.d_before, call.processors, stream);
}

}  // namespace

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) { launch<decltype(type)>(call, stream); });
}

}  // namespace adtrain::kernels
