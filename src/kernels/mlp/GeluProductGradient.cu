#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

/// The gradient of gelu's argument x: of two arguments, gradient · gelu'(x); of three, its product with the
/// third.
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
  CUTLASS_DEVICE Values operator()(const Values& gradient, const Values& x, const Values& factors) const {
    Values d_x;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCount; ++i) d_x[i] = factors[i] * gradient[i] * GeluForm(x[i]).slope(x[i]);
    return d_x;
  }
};

template <class Short, bool kDrops>
void launch(const GeluProductGradient& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Load = collective::detail::AuxLoadDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using Before = fusion::Sm90AuxLoad<Load::Stages, typename Load::EpilogueTile, Of, typename Load::Stride,
                                     typename Load::SmemLayoutAtom, typename Load::CopyOpS2R>;
  using Gradient =
      std::conditional_t<kDrops, Computed<GeluGradient, float, fusion::Sm90AccFetch, Before, KeptFactors>,
                         Computed<GeluGradient, float, fusion::Sm90AccFetch, Before>>;
  using Tree =
      Computed<cutlass::epilogue::thread::Identity, Of, fusion::Sm90EVT<ColumnSums<kTileColumns>, Gradient>>;
  using Product = EpilogueProduct<Short, RowMajor, Tree>;

  const typename Before::Arguments before{reinterpret_cast<const Of*>(call.before), Of(0),
                                          Product::stride_of(call.shape)};
  const auto gradient = [&]() -> typename Gradient::Arguments {
    if constexpr (kDrops)
      return {{}, before, call.dropout, {}};
    else
      return {{}, before, {}};
  }();
  Product::run("gelu_product_gradient", call.shape, call.out, call.d_out, call.weight,
               {{gradient, {call.parts}}, {}}, call.d_before, call.processors, stream);
}

}  // namespace

void gelu_product_gradient(const GeluProductGradient& call, cudaStream_t stream) {
  with_type(call.shape.type, [&](auto type) {
    using Short = decltype(type);
    if (call.dropout.keep != nullptr) return launch<Short, true>(call, stream);
    launch<Short, false>(call, stream);
  });
}

}  // namespace adtrain::kernels
