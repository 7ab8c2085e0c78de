#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "kernels/quantised/ProductOptions.h"
#include "kernels/quantised/QuantisedMatrix.h"

namespace adtrain {

/// How a network's linear layers are quantised, and multiply. A value.
struct WeightQuantisation {
  QuantisedCode code = QuantisedCode::nf4;
  bool double_quantisation = false;  ///< of 4 bits alone
  /// In which products are computed; none: the type of what is multiplied.
  std::optional<at::ScalarType> compute_type = std::nullopt;
  /// Of 8 bits: above 0, products are LLM.int8's with outliers of this magnitude (see outlier_product); else
  /// they are weight-only ones.
  double outlier_threshold = 0;

  QuantisedMatrix quantised(const at::Tensor& weights) const;
  /// Of such a matrix, by arithmetic.
  int64_t bytes(int64_t out_features, int64_t in_features) const;
  /// "nf4", "nf4-double", "int8", "int8-outliers-6": for names of folders, and for people.
  std::string name() const;
};

/// What a Linear multiplies by instead of its weight once its network is quantised. Copies of the Linear
/// share it.
struct QuantisedLinear {
  std::optional<QuantisedMatrix> matrix;  ///< none before
  WeightQuantisation how;

  /// Whether products with an x of this type are weight-only ones in this type.
  bool is_weight_only(at::ScalarType type) const {
    return how.compute_type.value_or(type) == type && how.outlier_threshold == 0;
  }
  /// y = x Wᵀ + bias of x's type, and what the options say, whose sum is (…, out); x (…, in), `bias` may be
  /// undefined.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& bias,
                        const ProductOptions& options = {}) const;
};

/// By the names of weights.
using QuantisedMatrices = std::map<std::string, QuantisedMatrix>;
/// Of the linear layers of a network, by the names of their weights.
using QuantisedLinears = std::map<std::string, std::shared_ptr<QuantisedLinear>>;

}  // namespace adtrain
