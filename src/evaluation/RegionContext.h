#pragma once

#include <cstdint>
#include <vector>

#include "evaluation/Context.h"

namespace adtrain {

/// Compressed context: each row holds the previous region, where there is one, and the current region.
///
/// A region ends where `</compress>` is the model's most probable token type at the query, and where the
/// region is full. (The type is not sampled: a model trained to end only full regions would by chance end
/// some at lengths that training never showed.) Then the previous region is dropped and the *same* query is
/// evaluated again at once, only for the rows concerned; no row loses an environment step. An empty region
/// cannot be closed.
class RegionContext final : public Context {
 public:
  RegionContext(int64_t rows, int64_t compress_interval);

  at::Tensor ask(const Predictor& predict, std::span<const int32_t> states) override;
  void append(const StepOfRows& step) override;

 private:
  Batch batch(std::span<const int32_t> states) const;
  std::vector<int64_t> ended_regions(const at::Tensor& token_logits) const;
  void close(int64_t row);

  TransitionRows regions_;
  std::vector<int32_t> previous_;  ///< transitions in the previous region
  std::vector<int32_t> current_;   ///< transitions in the current region
};

}  // namespace adtrain
