#pragma once

#include <cstdint>
#include <vector>

#include "evaluation/Context.h"

namespace adtrain {

/// Compressed context: each row holds the region before, where there is one, and the region that it is in.
///
/// A region ends where the model puts `</compress>`, its most probable token type at the query, and by count
/// where it is full. (The type is not sampled: trained to end full regions only, a sampled one would end
/// regions by small chances at every step, at lengths that training never showed.) Then the region before is
/// dropped and the *same* query is asked again at once, of the rows concerned alone; neither they nor the
/// others lose an environment step. An empty region cannot be closed.
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
  std::vector<int32_t> previous_;  ///< transitions in the region before
  std::vector<int32_t> current_;   ///< transitions in the region that is open
};

}  // namespace adtrain
