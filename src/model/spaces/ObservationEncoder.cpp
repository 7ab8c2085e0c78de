#include "model/spaces/ObservationEncoder.h"

#include <cmath>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "kernels/encoder/FusedSymbolicEncoder.h"
#include "model/spaces/VectorEncoder.h"

namespace adtrain {
namespace {

const std::string kName = "observation";

/// One number by its embedding; several by theirs, one behind the other, and a linear layer.
class EmbeddingEncoder : public ObservationEncoder {
 public:
  EmbeddingEncoder(ParameterFactory& factory, const TaskSpaces& spaces, int64_t features,
                   const Initialisation& initial)
      : embed_(factory, spaces, numbers_of(spaces) == 1 ? features : kDigitFeatures, /*spare_rows=*/0,
               initial) {
    const int64_t numbers = numbers_of(spaces);
    if (numbers > 1)
      linear_ = initial.outer_linear(factory, kName + ".linear", numbers * kDigitFeatures, features);
  }

  at::Tensor operator()(const Batch& batch, const Run&) const override {
    const at::Tensor embedded = embed_(batch.states);
    const at::Tensor flat = embedded.reshape({embedded.size(0), embedded.size(1), -1});
    return linear_.weight.defined() ? linear_(flat) : flat;
  }

 private:
  static int64_t numbers_of(const TaskSpaces& spaces) {
    const SymbolicCells cells = SymbolicCells::of(spaces);
    return cells.count() * cells.digits();
  }

  DigitEmbedding embed_;
  Linear linear_;  ///< undefined for one number
};

/// A convolution of 2 × 2 without padding, and ReLU, as products: cuDNN's convolutions need not repeat bit
/// for bit, and would use TF32 whatever the setting `tf32` says.
struct Convolution {
  at::Tensor weight;  ///< (out, in, 2, 2)
  at::Tensor bias;    ///< (out)

  /// Initialised as torch.nn.Conv2d: weight and bias uniform in ±1/√(4 in).
  static Convolution of(ParameterFactory& factory, const std::string& name, int64_t in, int64_t out) {
    constexpr int64_t kSide = 2;
    const double bound = 1.0 / std::sqrt(static_cast<double>(in * kSide * kSide));
    Convolution made;
    made.weight = factory.uniform(name + ".weight", {out, in, kSide, kSide}, bound);
    made.bias = factory.uniform(name + ".bias", {out}, bound);
    return made;
  }

  /// x (B, T, h, w, in) -> (B, T, h − 1, w − 1, out). Each cell is multiplied by all four corners of the
  /// kernel at once, and each place adds up what its four cells gave.
  at::Tensor operator()(const at::Tensor& x) const {
    const int64_t out = weight.size(0), in = weight.size(1), corners = 4;
    const at::Tensor products = at::linear(x, weight.permute({2, 3, 0, 1}).reshape({corners * out, in}));
    const int64_t high = x.size(2) - 1, wide = x.size(3) - 1;
    at::Tensor sum = bias;
    for (int64_t corner = 0; const at::Tensor& product : products.unflatten(-1, {corners, out}).unbind(-2)) {
      sum = sum + product.narrow(2, corner / 2, high).narrow(3, corner % 2, wide);
      ++corner;
    }
    return at::relu(sum);
  }
};

/// The encoder of XLand-100B's baseline (arXiv:2406.08973): embeddings of a cell's digits, three
/// convolutions, and a linear layer. Its table of the first digit, the tile, has a row more than there are
/// tiles.
class ConvolutionEncoder : public ObservationEncoder {
 public:
  ConvolutionEncoder(ParameterFactory& factory, const TaskSpaces& spaces, int64_t features,
                     const Initialisation& initial)
      : grid_(grid_of(spaces, features).value()),
        embed_(factory, spaces, kDigitFeatures, /*spare_rows=*/1, initial) {
    int64_t channels = embed_.cells().digits() * kDigitFeatures;
    for (int64_t layer = 1; layer <= kConvolutions; ++layer) {
      convolutions_.push_back(
          Convolution::of(factory, fmt::format("{}.convolution_{}", kName, layer), channels, kChannels));
      channels = kChannels;
    }
    // Each convolution takes a row and a column away.
    const int64_t left =
        (embed_.cells().shape[0] - kConvolutions) * (embed_.cells().shape[1] - kConvolutions);
    linear_ = initial.outer_linear(factory, kName + ".linear", left * kChannels, features);
  }

  at::Tensor operator()(const Batch& batch, const Run& run) const override {
    if (run.plan.fused_encoder()) return by_kernels(batch, run.main_gradients);
    at::Tensor x = embed_(batch.states);  // (B, T, h, w, channels)
    for (const Convolution& convolution : convolutions_) x = convolution(x);
    return linear_(x.permute({0, 1, 4, 2, 3}).flatten(2));
  }

 private:
  at::Tensor by_kernels(const Batch& batch, MainGradients* main_gradients) const {
    std::vector<at::Tensor> parameters;
    for (const Embedding& table : embed_.tables()) parameters.push_back(table.weight);
    for (const Convolution& convolution : convolutions_) {
      parameters.push_back(convolution.weight);
      parameters.push_back(convolution.bias);
    }
    if (grid_.has_fused_linear()) {
      parameters.push_back(linear_.values());
      parameters.push_back(linear_.bias);
    }
    const at::Tensor found = kernels::fused_symbolic_encoder(grid_, embed_.digits().numbers(batch.states),
                                                             parameters, main_gradients);
    return grid_.has_fused_linear() ? found : linear_(found);
  }

  kernels::SymbolGrid grid_;
  DigitEmbedding embed_;
  std::vector<Convolution> convolutions_;
  Linear linear_;
};

/// Real numbers, normalised where the batch says by what.
class NormalisedVectorEncoder : public ObservationEncoder {
 public:
  explicit NormalisedVectorEncoder(VectorEncoder encoder) : encoder_(std::move(encoder)) {}

  at::Tensor operator()(const Batch& batch, const Run&) const override {
    if (!batch.state_mean.defined()) return encoder_(batch.states);
    const auto of_steps = [&](const at::Tensor& statistic) {
      return batch.packed() ? statistic : statistic.unsqueeze(1);
    };
    return encoder_((batch.states.to(at::kFloat) - of_steps(batch.state_mean)) /
                    of_steps(batch.state_deviation));
  }

 private:
  VectorEncoder encoder_;
};

}  // namespace

static_assert(ObservationEncoder::kDigitFeatures == kernels::SymbolicEncoderShape::kDigitFeatures &&
              ObservationEncoder::kChannels == kernels::SymbolicEncoderShape::kChannels &&
              ObservationEncoder::kConvolutions == kernels::SymbolicEncoderShape::kConvolutions);

std::unique_ptr<ObservationEncoder> ObservationEncoder::create(ObservationEncoderKind kind,
                                                               ParameterFactory& factory,
                                                               const TaskSpaces& spaces, int64_t features,
                                                               const Initialisation& initial) {
  const int64_t numbers = spaces.observation.size();
  switch (kind) {
    case ObservationEncoderKind::kConvolution:
      return std::make_unique<ConvolutionEncoder>(factory, spaces, features, initial);
    case ObservationEncoderKind::kLinear:
      return std::make_unique<NormalisedVectorEncoder>(
          VectorEncoder::linear(factory, kName, numbers, features, initial));
    case ObservationEncoderKind::kMlp:
      return std::make_unique<NormalisedVectorEncoder>(
          VectorEncoder::mlp(factory, kName, numbers, features, initial));
    default:
      return std::make_unique<EmbeddingEncoder>(factory, spaces, features, initial);
  }
}

std::optional<kernels::SymbolGrid> ObservationEncoder::grid_of(const TaskSpaces& spaces, int64_t features) {
  if (spaces.observation.kind == Space::Kind::kBox) return std::nullopt;
  const SymbolicCells cells = SymbolicCells::of(spaces);
  if (!cells.fit_convolutions()) return std::nullopt;
  return kernels::SymbolGrid{cells.shape[0], cells.shape[1], cells.values,
                             spaces.observation.shape.size() == cells.shape.size(), features};
}

DigitEmbedding::DigitEmbedding(ParameterFactory& factory, const TaskSpaces& spaces, int64_t features,
                               int64_t spare_rows, const Initialisation& initial)
    : digits_(spaces) {
  for (const int64_t values : cells().values) {
    const int64_t rows = values + (tables_.empty() ? spare_rows : 0);
    tables_.push_back(initial.outer_embedding(factory, fmt::format("{}.embed_{}", kName, tables_.size() + 1),
                                              rows, features));
  }
}

at::Tensor DigitEmbedding::operator()(const at::Tensor& states) const {
  const std::vector<at::Tensor> digits = digits_(states);
  std::vector<at::Tensor> embedded;
  for (size_t digit = 0; digit < tables_.size(); ++digit) embedded.push_back(tables_[digit](digits[digit]));
  return at::cat(embedded, -1);
}

}  // namespace adtrain
