#include "benchmark/ForwardFlops.h"

#include <cstdint>

namespace adtrain {
namespace {

/// A sequence as the blocks see it; Streams says what context and queries are.
struct Tokens {
  int64_t context;
  int64_t queries;
  int64_t read_by_loss;  ///< the last so many tokens
  int64_t all() const { return context + queries; }
};

Tokens tokens_of(const ModelOptions& model, LossPositions positions) {
  const bool every_prefix = positions == LossPositions::kAll;
  if (model.compressed()) {
    const int64_t queries = model.compress_interval + 1;
    const int64_t context = model.longest_compressed_sequence();
    return every_prefix ? Tokens{context, queries, queries} : Tokens{context, 0, 1};
  }
  if (model.layout() == TokenLayout::kSplit) {
    const int64_t context = 3 * (model.n_transit - 1) + 1;
    return {context, 0, every_prefix ? context : 1};
  }
  if (model.layout() == TokenLayout::kPrevious) {
    return {model.n_transit, 0, every_prefix ? model.n_transit : 1};
  }
  return every_prefix ? Tokens{model.n_transit, model.n_transit, model.n_transit}
                      : Tokens{model.n_transit, 0, 1};
}

/// Tokens that are read by the last `readers` of `context` slots, each of which reads itself and all before.
double pairs_read(int64_t context, int64_t readers) {
  return static_cast<double>(readers) * static_cast<double>(2 * context - readers + 1) / 2;
}

/// One block whose output is wanted for the last `rows` tokens.
double block_flops(const ModelOptions& model, const Tokens& tokens, int64_t rows) {
  const auto width = static_cast<double>(model.tf_n_embd);
  const auto inner = static_cast<double>(model.inner_width());
  const auto wanted = static_cast<double>(rows);
  const bool gated = model.block_pieces().mlp == MlpKind::kSwiglu;  // which has a third matrix
  const double pairs = rows == tokens.all() ? pairs_read(tokens.context, tokens.context) +
                                                  pairs_read(tokens.context, tokens.queries)
                                            : pairs_read(tokens.context, rows);
  const double projection_in = 2 * static_cast<double>(tokens.all()) * width * 3 * width;
  const double attention = 2 * pairs * width * 2;  // scores, and the sum of values by weights
  const double projection_out = 2 * wanted * width * width;
  const double mlp = 2 * wanted * width * inner * (gated ? 3 : 2);
  return projection_in + attention + projection_out + mlp;
}

}  // namespace

double forward_flops(const ModelOptions& model, LossPositions positions) {
  const Tokens tokens = tokens_of(model, positions);
  return static_cast<double>(model.tf_n_layer - 1) * block_flops(model, tokens, tokens.all()) +
         block_flops(model, tokens, tokens.read_by_loss);
}

}  // namespace adtrain
