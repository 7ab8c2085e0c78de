#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "evaluation/Predictor.h"
#include "evaluation/TransitionRows.h"
#include "model/ModelOptions.h"

namespace adtrain {

/// The contexts of n learners, from which a model predicts their next actions.
class Context {
 public:
  virtual ~Context() = default;

  /// The model's action logits, float32 (n, A), in the current `states`, (n, 2). To be asked once a step.
  virtual at::Tensor ask(const Predictor& predict, std::span<const int32_t> states) = 0;
  /// The last `columns` transitions of each row, at the end of so many columns, zeros before shorter rows.
  struct Latest {
    Batch transitions;
    std::vector<int64_t> lengths;  ///< (n): columns that are there
  };
  /// For networks that plan, which have no compressed context. `columns`: less than n_transit.
  virtual Latest latest(int64_t columns) const;
  /// Appends the step that followed.
  virtual void append(const StepOfRows& step) = 0;

  /// The empty contexts of `rows` learners, of the kind and length that the model was built for. `kept`: how
  /// they keep keys and values. `forget_unrewarded`: see EvaluationOptions; not for models with compressed
  /// context, nor where rows slide.
  static std::unique_ptr<Context> create(const ModelOptions& model, int64_t rows,
                                         const RollingPredictors& kept = {},
                                         std::optional<int64_t> forget_unrewarded = std::nullopt);
};

}  // namespace adtrain
