#include "model/RollingParts.h"

#include <cstddef>
#include <memory>

namespace adtrain {
namespace {

using Parts = AlgorithmDistillation::Parts;
using Tokens = AlgorithmDistillation::Tokens;

/// The parts of who begins a step with block `first`, or with the embeddings: he alone counts its tokens.
Parts parts_of(const Parts& whole, const NewestStep& step, int64_t first_of_all) {
  const auto kept =
      std::make_shared<RollingBlocks>(RollingBlocks::of(step.window, static_cast<size_t>(whole.blocks)));
  Parts parts = {.blocks = whole.blocks,
                 .embeddings = nullptr,
                 .through = nullptr,
                 .head = step.head ? step.head : whole.head};
  const auto begin_step = [kept, passing = step.passing](const at::Tensor& x) {
    kept->places.add(x.size(1), passing, x.device());
  };
  parts.embeddings = [=](const Batch& rows) {
    kept->prepare();
    Tokens tokens = step.tokens(rows);
    begin_step(tokens.x);
    if (step.with_positions) tokens.x = step.with_positions(tokens.x, kept->places);
    return tokens;
  };
  parts.through = [=, blocks = whole.blocks](const Tokens& tokens, int64_t first, int64_t end) {
    if (first == first_of_all) begin_step(tokens.x);
    const at::Tensor x = step.through(tokens.x, first, end, *kept);
    // Contiguous, so that a head on another device, which gets a copy, multiplies as one on this device does.
    return end == blocks ? last_of(x, 1, 1).contiguous() : x;
  };
  return parts;
}

}  // namespace

Parts with_rolling(Parts whole, const NewestStep& step) {
  const Parts of_windows = whole;
  whole.window = step.window;
  whole.rolling = [=](int64_t first) { return parts_of(of_windows, step, first); };
  return whole;
}

}  // namespace adtrain
