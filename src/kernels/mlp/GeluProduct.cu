#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

template <class>
struct Gelu;
template <int kCount>
struct Gelu<cutlass::Array<float, kCount>> {
  using Values = cutlass::Array<float, kCount>;
  CUTLASS_DEVICE Values operator()(const Values& x) const {
    Values y;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) y[i] = x[i] * GeluForm(x[i]).phi;
    return y;
  }
};

/// Its derivative. The compiler sees what both have in common, and computes that once.
template <class>
struct GeluSlope;
template <int kCount>
struct GeluSlope<cutlass::Array<float, kCount>> {
  using Values = cutlass::Array<float, kCount>;
  CUTLASS_DEVICE Values operator()(const Values& x) const {
    Values slope;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) slope[i] = GeluForm(x[i]).slope(x[i]);
    return slope;
  }
};

template <class Short>
void launch(const GeluProduct& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Store = collective::detail::AuxStoreDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using OfColumns = cute::Stride<cute::Int<0>, cute::Int<1>, int64_t>;
  using Biased = Computed<cutlass::plus, float, fusion::Sm90AccFetch,
                          fusion::Sm90RowBroadcast<0, ProductTile, Of, float, OfColumns>>;
  using Slope = fusion::Sm90EVT<
      fusion::Sm90AuxStore<Store::Stages, typename Store::EpilogueTile, Of, kRounding, typename Store::Stride,
                           typename Store::SmemLayoutAtom, typename Store::CopyOpR2S>,
      Computed<GeluSlope, float, fusion::Sm90SplitTreeFetch>>;
  using Tree = fusion::Sm90SplitTreeVisitor<Biased, Computed<Gelu, Of, fusion::Sm90SplitTreeFetch>, Slope>;
  using Product = EpilogueProduct<Short, ColumnMajor, Tree>;
  const typename Biased::Arguments biased{{}, {reinterpret_cast<const Of*>(call.bias)}, {}};
  const typename Slope::Arguments slope{{},
                                        {reinterpret_cast<Of*>(call.slope), Product::stride_of(call.shape)}};
  Product::run("gelu_product", call.shape, call.in, call.x, call.weight, {biased, slope, {}}, call.y,
               call.processors, stream);
}

}  // namespace

void gelu_product(const GeluProduct& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) { launch<decltype(type)>(call, stream); });
}

}  // namespace adtrain::kernels
