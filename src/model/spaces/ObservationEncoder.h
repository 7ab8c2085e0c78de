#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/MainGradients.h"
#include "data/Batch.h"
#include "kernels/encoder/SymbolGrid.h"
#include "kernels/plan/KernelPlan.h"
#include "model/Initialisation.h"
#include "model/SpacePieces.h"
#include "model/spaces/SymbolicCells.h"

namespace adtrain {

/// Makes features of observations. Not thread-safe.
class ObservationEncoder {
 public:
  /// Features of a digit's embedding, where an observation has several digits (XLand-100B's baseline).
  static constexpr int64_t kDigitFeatures = 64;
  /// Of 2 × 2, and what each of them gives for a place.
  static constexpr int64_t kConvolutions = 3, kChannels = 32;

  /// `kind` is not kAuto and fits the spaces. Parameters are called observation.….
  static std::unique_ptr<ObservationEncoder> create(ObservationEncoderKind kind, ParameterFactory& factory,
                                                    const TaskSpaces& spaces, int64_t features,
                                                    const Initialisation& initial);
  virtual ~ObservationEncoder() = default;

  /// What runs an encoder, where there is a choice.
  struct Run {
    const kernels::KernelPlan& plan;
    MainGradients* main_gradients;  ///< where kernels add gradients; null: autograd gets them
  };
  /// Rows of any space -> (B, T, features) of the parameters' type. Real numbers are normalised first, where
  /// the batch says by what.
  virtual at::Tensor operator()(const Batch& batch, const Run& run) const = 0;

  /// What convolutions read of these spaces, and make of it; nothing where they do not fit.
  static std::optional<kernels::SymbolGrid> grid_of(const TaskSpaces& spaces, int64_t features);
};

/// The embeddings of all digits of a cell, one behind the other.
class DigitEmbedding {
 public:
  /// `spare_rows` more for the first digit than it has values.
  DigitEmbedding(ParameterFactory& factory, const TaskSpaces& spaces, int64_t features, int64_t spare_rows,
                 const Initialisation& initial);

  /// (B, T, *cells.shape, digits · features).
  at::Tensor operator()(const at::Tensor& states) const;
  const SymbolicCells& cells() const { return digits_.cells(); }
  const SymbolicDigits& digits() const { return digits_; }
  /// Of each digit: (values, features).
  const std::vector<Embedding>& tables() const { return tables_; }

 private:
  SymbolicDigits digits_;
  std::vector<Embedding> tables_;  ///< of each digit
};

}  // namespace adtrain
