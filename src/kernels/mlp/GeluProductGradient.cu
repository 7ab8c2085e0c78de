#include "kernels/mlp/ColumnSums.cuh"
#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class Short>
void launch(const GeluProductGradient& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Load = collective::detail::AuxLoadDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using Slope = fusion::Sm90AuxLoad<Load::Stages, typename Load::EpilogueTile, Of, typename Load::Stride,
                                    typename Load::SmemLayoutAtom, typename Load::CopyOpS2R>;
  using Gradient = Computed<cutlass::multiplies, float, fusion::Sm90AccFetch, Slope>;
  using Tree = Computed<cutlass::epilogue::thread::Identity, Of,
                        fusion::Sm90EVT<ColumnSums<kGeluTileColumns>, Gradient>>;
  using Product = EpilogueProduct<Short, Tree>;
  const typename Slope::Arguments slope{reinterpret_cast<const Of*>(call.slope), Of(0),
                                        Product::stride_of(call.shape)};
  Product::run("gelu_product_gradient", call.shape, call.out, call.d_out, call.weight,
               {{{{}, slope, {}}, {call.parts}}, {}}, call.d_sum, call.processors, stream);
}

}  // namespace

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) { launch<decltype(type)>(call, stream); });
}

}  // namespace adtrain::kernels
