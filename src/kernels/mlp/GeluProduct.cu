#include "kernels/mlp/EpilogueProduct.cuh"
#include "kernels/mlp/GeluValues.cuh"
#include "kernels/mlp/KeptArguments.cuh"
#include "kernels/primitives/ShortType.cuh"

namespace adtrain::kernels {
namespace {

/// The scale of elements that dropout keeps.
struct KeptScale {
  float scale;
};

/// A formula of GELU for each of an array's values.
template <class Values, class Formula>
struct OfEach {
  using Arguments = KeptScale;
  CUTLASS_DEVICE Values operator()(const Values& x, const KeptScale& kept) const {
    Values results;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Values::kElements; ++i) results[i] = Formula()(GeluForm(x[i], kept.scale), x[i]);
    return results;
  }
};
struct ValueFormula {
  CUTLASS_DEVICE float operator()(const GeluForm& form, float x) const { return x * form.phi; }
};
struct SlopeFormula {
  CUTLASS_DEVICE float operator()(const GeluForm& form, float x) const { return form.slope(x); }
};
template <class Values>
using Gelu = OfEach<Values, ValueFormula>;
/// Its derivative. The compiler sees what both have in common, and computes that once.
template <class Values>
using GeluSlope = OfEach<Values, SlopeFormula>;

template <class Short, bool kDrops>
void launch(const GeluProduct& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Store = collective::detail::AuxStoreDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using OfColumns = cute::Stride<cute::Int<0>, cute::Int<1>, int64_t>;
  using Biased = Computed<cutlass::plus, float, fusion::Sm90AccFetch,
                          fusion::Sm90RowBroadcast<0, ProductTile, Of, float, OfColumns>>;
  using Kept = fusion::Sm90EVT<KeptArguments<kGeluTileRows, kGeluTileColumns>, Biased>;
  using Argument = std::conditional_t<kDrops, Kept, Biased>;
  using Value = Computed<Gelu, Of, fusion::Sm90SplitTreeFetch>;
  using Slope = fusion::Sm90EVT<
      fusion::Sm90AuxStore<Store::Stages, typename Store::EpilogueTile, Of, kRounding, typename Store::Stride,
                           typename Store::SmemLayoutAtom, typename Store::CopyOpR2S>,
      Computed<GeluSlope, float, fusion::Sm90SplitTreeFetch>>;
  using Product = EpilogueProduct<Short, ColumnMajor, fusion::Sm90SplitTreeVisitor<Argument, Value, Slope>>;
  const typename Biased::Arguments biased{{}, {reinterpret_cast<const Of*>(call.bias)}, {}};
  const auto argument = [&]() -> typename Argument::Arguments {
    if constexpr (kDrops)
      return {biased, {call.dropout.keep}};
    else
      return biased;
  }();
  const KeptScale kept{kDrops ? call.dropout.scale : 1.0F};
  const typename Slope::Arguments slope{{{}, kept},
                                        {reinterpret_cast<Of*>(call.slope), Product::stride_of(call.shape)}};
  Product::run("gelu_product", call.shape, call.in, call.x, call.weight, {argument, slope, {{}, kept}},
               call.y, call.processors, stream);
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
