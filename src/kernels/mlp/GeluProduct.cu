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

template <class Values>
struct Phi {
  using Arguments = KeptScale;
  CUTLASS_DEVICE Values operator()(const Values& x, const KeptScale& kept) const {
    Values phi;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Values::kElements; ++i) phi[i] = GeluForm(x[i]).phi(kept.scale);
    return phi;
  }
};
/// The compiler sees what it has in common with Phi, and computes that once.
template <class Values>
struct Slope {
  CUTLASS_DEVICE Values operator()(const Values& x, const Values& phi) const {
    Values slope;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Values::kElements; ++i) slope[i] = GeluForm(x[i]).slope(x[i], phi[i]);
    return slope;
  }
};

template <class Short, bool kDrops>
void launch(const GeluProduct& call, cudaStream_t stream) {
  using Of = Element<Short>;
  using Store = collective::detail::AuxStoreDescriptor<EpilogueParts<Short>, RowMajor, Of>;
  using OfColumns = cute::Stride<cute::Int<0>, cute::Int<1>, int64_t>;
  using Biased = Computed<cutlass::plus, float, fusion::Sm90AccFetch,
                          fusion::Sm90RowBroadcast<0, ProductTile, Of, float, OfColumns>>;
  using Kept = fusion::Sm90EVT<KeptArguments<kGeluTileRows, kGeluTileColumns>, Biased>;
  using Argument = std::conditional_t<kDrops, Kept, Biased>;
  using StoredSlope =
      fusion::Sm90AuxStore<Store::Stages, typename Store::EpilogueTile, Of, kRounding, typename Store::Stride,
                           typename Store::SmemLayoutAtom, typename Store::CopyOpR2S>;
  // Each node with the places of what it is computed from.
  using Nodes = cute::tuple<cute::seq<>, cute::seq<0>, cute::seq<0, 1>, cute::seq<2>, cute::seq<0, 1>>;
  using Tree =
      fusion::Sm90TopologicalVisitor<float, Nodes, Argument, Function<Phi, float>, Function<Slope, float>,
                                     StoredSlope, Function<cutlass::multiplies, Of>>;
  using Product = EpilogueProduct<Short, ColumnMajor, Tree>;
  const typename Biased::Arguments biased{{}, {reinterpret_cast<const Of*>(call.bias)}, {}};
  const auto argument = [&]() -> typename Argument::Arguments {
    if constexpr (kDrops)
      return {biased, {call.dropout.keep}};
    else
      return biased;
  }();
  const KeptScale kept{kDrops ? call.dropout.scale : 1.0F};
  const typename StoredSlope::Arguments slope{reinterpret_cast<Of*>(call.slope),
                                              Product::stride_of(call.shape)};
  Product::run("gelu_product", call.shape, call.in, call.x, call.weight, {argument, kept, {}, slope, {}},
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
