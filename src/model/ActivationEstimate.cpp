#include "model/ActivationEstimate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "model/PreviousTokens.h"
#include "model/spaces/TokenEstimate.h"

namespace adtrain {
namespace {

/// The rows of the tensors of one block, over all sequences.
struct Rows {
  int64_t in;   ///< of its input
  int64_t out;  ///< of its output, and of all that follows attention
};

/// What one block takes, in bytes.
struct BlockBytes {
  int64_t kept;      ///< from its forward to its backward pass
  int64_t backward;  ///< by temporaries of its backward pass
  int64_t mlp = 0;   ///< of `kept`, what recompute: mlp frees until the backward pass
};

class Estimate {
 public:
  Estimate(const ModelOptions& options, const ModelShape& shape, const kernels::KernelPlan& plan,
           LossPositions positions, at::ScalarType type, int64_t sequences, bool training = true)
      : options_(options),
        spaces_(shape.spaces),
        states_(shape.states()),
        plan_(plan),
        sequences_(sequences),
        element_(static_cast<int64_t>(c10::elementSize(type))),
        slope_(plan.gelu_in_epilogues() && type == at::kBFloat16 ? 1 : element_),
        width_(options.tf_n_embd),
        inner_(options.inner_width()),
        heads_(options.tf_n_head),
        without_scores_(plan.own_attention() || (training && plan.cudnn_attention())),
        training_(training),
        drops_(training && (options.tf_dropout > 0 || options.tf_attn_dropout > 0)),
        all_positions_(positions == LossPositions::kAll),
        packed_(shape.packed && all_positions_) {
    context_ = options.longest_context();
    const int64_t most_queries = options.compressed() ? options.compress_interval + 1 : context_;
    queries_ = all_positions_ ? most_queries : 1;
    tokens_ = all_positions_ && options.needs_query_stream() ? context_ + queries_ : context_;
  }

  int64_t training_bytes(int64_t forward_only) const {
    const Rows whole = {sequences_ * tokens_, sequences_ * tokens_}, last = {whole.in, sequences_ * queries_};
    int64_t kept = input_bytes() + dynamics_bytes(), most = 0;
    for (int64_t layer = 0; layer < options_.tf_n_layer; ++layer) {
      const Rows& rows = layer + 1 == options_.tf_n_layer ? last : whole;
      const BlockBytes block = block_bytes(rows);
      if (layer < forward_only) {
        most = std::max(most, kept + block.kept);
        continue;
      }
      // In its backward pass a block has again all that it would have kept.
      most = std::max(most, kept + block.kept + block.backward + recomputed_bytes(rows));
      kept += kept_until_backward(block, rows);
    }
    return most;
  }

  /// One block at a time.
  int64_t inference_bytes() const {
    const int64_t rows = sequences_ * tokens_;
    // Products of many rows dequantise one matrix at a time.
    const int64_t dequantised = plan_.quantised() ? element_ * width_ * std::max(inner_, 3 * width_) : 0;
    return input_bytes() + block_bytes({rows, rows}).kept + dequantised;
  }

 private:
  /// The batch, its embedding, which is the first block's input, and what the embedding keeps.
  int64_t input_bytes() const {
    constexpr int64_t kStepBytes = 4 * 6;  // two coordinates twice, action, reward
    constexpr int64_t kFeatures = 10;
    const int64_t rows = sequences_ * tokens_;
    if (!spaces_.empty()) {
      // As if all rows were of the group that takes the most.
      int64_t step = 0, token = 0;
      for (const TaskSpaces& spaces : spaces_) {
        step = std::max(step, step_bytes(spaces));
        token = std::max(token, token_elements(options_, spaces, plan_.fused_encoder()));
      }
      const int64_t kept = rows * token + sequences_ * queries_ * head_elements(options_);
      return step * sequences_ * context_ + element_ * (alibi_elements() + kept + rows * width_) +
             packed_mask_bytes();
    }
    const int64_t batch = kStepBytes * sequences_ * context_;
    const bool drops_tokens = options_.block() == TransformerBlock::kGpt2;
    const int64_t embedding = (plan_.fused_embedding() ? 0 : rows * (element_ * kFeatures + 8)) +
                              (drops_tokens ? bits(rows * width_) : 0);
    const int64_t composed = options_.composed() ? composed_input_bytes(rows) : 0;
    return batch + embedding + composed + rows * element_ * width_;
  }

  /// What the head of dynamics keeps: its hidden layer before and after GELU, and its logits, once more in
  /// fp32 with their log-softmax.
  int64_t dynamics_bytes() const {
    if (!options_.dynamics) return 0;
    constexpr int64_t kFloat = 4, kRewards = 2;
    const int64_t logits = states_ + kRewards, copies = element_ == kFloat ? 1 : 2;
    return sequences_ * queries_ * (element_ * (2 * 4 * width_ + logits) + copies * kFloat * logits);
  }

  BlockBytes block_bytes(const Rows& rows) const {
    const bool post_norm = options_.compressed() || options_.block() == TransformerBlock::kPostNorm;
    if (plan_.whole_blocks()) return post_norm ? whole_post_norm(rows) : whole_pre_norm(rows);
    if (plan_.by_sublayers() && options_.composed() && without_scores_) return composed_sublayers(rows);
    if (plan_.by_sublayers() && options_.block() == TransformerBlock::kGpt2) return gpt2_sublayers(rows);
    if (plan_.by_sublayers() && !options_.composed())
      return post_norm ? post_norm_sublayers(rows) : pre_norm_sublayers(rows);
    if (post_norm) return library_post_norm(rows);
    if (options_.composed()) return library_composed(rows);
    return options_.block() == TransformerBlock::kGpt2 ? library_gpt2(rows) : library_pre_norm(rows);
  }

  int64_t kept_until_backward(const BlockBytes& block, const Rows& rows) const {
    switch (options_.recompute) {
      case Recompute::kMlp:
        return block.kept - block.mlp;
      case Recompute::kBlock:
        return element_ * rows.out * width_;  // its output, which the next one begins with
      default:
        return block.kept;
    }
  }
  /// What a block takes in its backward pass beside what it would have kept: the gradient of its output,
  /// which is held until the block is done.
  int64_t recomputed_bytes(const Rows& rows) const {
    return options_.recompute == Recompute::kBlock ? element_ * rows.out * width_ : 0;
  }

  bool one_token_out(const Rows& rows) const { return rows.out == sequences_ && !all_positions_; }
  /// One bit for each element.
  int64_t bits(int64_t elements) const { return drops_ ? elements / 8 : 0; }
  /// The logarithm of the sum of a row's exponentials and, where weights are dropped, a bit for each key that
  /// a row may read. Whole blocks draw the bits of all masks where any drops.
  int64_t attention_rows(int64_t rows) const {
    constexpr int64_t kKeysOfWord = 32, kFloat = 4;
    const bool draws = plan_.whole_blocks() ? drops_ : training_ && options_.tf_attn_dropout > 0;
    const int64_t words = draws ? (context_ + kKeysOfWord - 1) / kKeysOfWord : 0;
    return kFloat * heads_ * rows * (1 + words);
  }

  BlockBytes whole_post_norm(const Rows& rows) const {
    // y, the attention output, and both normalised sums.
    const int64_t kept = 4 * element_ * rows.out * width_ + attention_rows(rows.out) +
                         bits(rows.out * (2 * width_ + inner_)) + 2 * 4 * rows.out;
    return {kept, 2 * element_ * rows.out * width_ + element_ * rows.in * width_ + partial_sums()};
  }

  BlockBytes whole_pre_norm(const Rows& rows) const {
    // The normed input, then y, the attention output, and the residual before and after its norm.
    const int64_t kept = element_ * rows.in * width_ + 4 * element_ * rows.out * width_ +
                         attention_rows(rows.out) + bits((rows.in + rows.out) * width_);
    // The gradients of the normed tensors, for SwiGLU in two terms, of y, x1 and x.
    return {kept, 4 * element_ * rows.out * width_ + element_ * rows.in * width_ + partial_sums()};
  }

  /// Of parameters' gradients, from the thread blocks of one kernel; about one a multiprocessor.
  int64_t partial_sums() const {
    constexpr int64_t kThreadBlocks = 132, kFloat = 4;
    return kThreadBlocks * kFloat * 2 * width_ * inner_;
  }

  /// Queries, keys and values, and the attention output. Post-norm blocks project the queries of one token
  /// alone.
  int64_t attention_tensors(const Rows& rows) const {
    const bool apart = one_token_out(rows) && options_.block() == TransformerBlock::kPostNorm;
    const int64_t projected = apart ? 2 * rows.in + rows.out : 3 * rows.in;
    return element_ * width_ * (projected + rows.out);
  }
  BlockBytes post_norm_sublayers(const Rows& rows) const {
    // After attention: the sum and its norm, the normalised second sum, y; the MLP's hidden layer.
    const int64_t mlp = rows.out * inner_ * gelu_bytes(), after = element_ * rows.out * 4 * width_ + mlp;
    const bool last_token = one_token_out(rows) && !options_.compressed();
    const int64_t attention = last_token ? last_token_attention() : attention_tensors(rows);
    const int64_t kept = attention + attention_rows(rows.out) + after +
                         bits(rows.out * (2 * width_ + inner_)) + 2 * 4 * rows.out;
    const int64_t of_mlp = element_ * rows.out * (2 * width_ + gelu_gradients() * inner_);
    constexpr int64_t kFloat = 4;
    // Of the input, of the vectors, and of the weights before dropout.
    const int64_t of_last_token =
        element_ * (rows.in + heads_ * sequences_) * width_ + kFloat * sequences_ * heads_ * context_;
    const int64_t of_attention = last_token ? of_last_token : attention_backward(rows);
    return {kept, std::max(of_mlp, of_attention - after), mlp};
  }
  /// Attention whose last token alone has a query: for each head two vectors and an average of tokens, and
  /// for each token a probability, a weight and the gradient of its score.
  int64_t last_token_attention() const {
    constexpr int64_t kFloat = 4;
    return sequences_ * heads_ * (element_ * 3 * width_ + (kFloat + 2 * element_) * context_) +
           2 * element_ * sequences_ * width_;
  }

  BlockBytes pre_norm_sublayers(const Rows& rows) const {
    // The normed input; after attention the sum and its norm, both gates, their product, y.
    const int64_t after = element_ * rows.out * (3 * width_ + 3 * inner_);
    const int64_t kept = element_ * rows.in * width_ + attention_tensors(rows) + attention_rows(rows.out) +
                         after + bits((rows.in + rows.out) * width_);
    const int64_t of_mlp = element_ * rows.out * (3 * width_ + 3 * inner_);
    return {kept, std::max(of_mlp, attention_backward(rows) - after), element_ * rows.out * 3 * inner_};
  }

  /// The gradients of queries, keys, values and the attention output, of the residual and of the input. By
  /// then a block's second part has been freed.
  int64_t attention_backward(const Rows& rows) const {
    return element_ * width_ * (3 * rows.in + 2 * rows.out + rows.in + 2 * keys_of_both(rows));
  }
  /// How many keys and values have a second gradient, from the second stream's queries.
  int64_t keys_of_both(const Rows& rows) const {
    return plan_.streams_keys() && tokens_ > context_ && rows.out > sequences_ * queries_
               ? sequences_ * context_
               : 0;
  }

  /// libtorch's attention with a mask takes it as scores of every head.
  int64_t library_mask() const {
    return (all_positions_ && options_.needs_query_stream()) || options_.compressed()
               ? element_ * sequences_ * tokens_ * tokens_
               : 0;
  }

  /// The gradients of some tensors of a block at once.
  int64_t library_backward(const Rows& rows) const { return element_ * rows.out * (6 * width_ + 3 * inner_); }

  BlockBytes library_post_norm(const Rows& rows) const {
    const int64_t kept = attention_tensors(rows) + element_ * rows.out * (4 * width_ + 2 * inner_);
    // The second norm and the sum before it are computed again, too.
    const int64_t mlp = element_ * rows.out * (width_ + 2 * inner_);
    return {kept, library_backward(rows) + library_mask(), mlp};
  }

  BlockBytes library_pre_norm(const Rows& rows) const {
    // The dropped and the normed input, queries and keys before and after they are rotated.
    const int64_t before = element_ * rows.in * 4 * width_;
    const int64_t after = element_ * rows.out * (3 * width_ + 4 * inner_);
    return {before + attention_tensors(rows) + after, library_backward(rows) + library_mask(),
            element_ * rows.out * 4 * inner_};
  }

  /// ALiBi's scores, which all blocks read, and what stands before the last product of PreviousTokens:
  /// coordinates, the state, action and reward, and their concatenation.
  int64_t composed_input_bytes(int64_t rows) const {
    const bool previous = options_.layout() == TokenLayout::kPrevious;
    constexpr int64_t kEmbedded = 6 * PreviousTokens::kFeatures;
    return element_ * alibi_elements() + (previous ? element_ * rows * kEmbedded : 0);
  }

  int64_t alibi_elements() const {
    const bool alibi = options_.block_pieces().positions == PositionKind::kAlibi;
    return alibi && !without_scores_ ? (packed_ ? sequences_ : 1) * heads_ * tokens_ * tokens_ : 0;
  }
  /// Of each row, in fp32 and in the type of its tokens; ALiBi's scores are the mask where there are some.
  int64_t packed_mask_bytes() const {
    constexpr int64_t kFloat = 4;
    if (!packed_ || without_scores_ || alibi_elements() > 0) return 0;
    return (kFloat + element_) * sequences_ * tokens_ * tokens_;
  }

  /// Whether our own attention norms queries and keys itself.
  bool normed_by_attention() const {
    const BlockPieces pieces = options_.block_pieces();
    return plan_.own_attention() && pieces.qk_norm == Choice::kOn &&
           pieces.positions != PositionKind::kRotary;
  }
  /// Copies of queries, keys and values before attention.
  int64_t ordered_heads(const Rows& rows) const {
    const BlockPieces pieces = options_.block_pieces();
    const bool normed_keys = pieces.qk_norm == Choice::kOn,
               rotated = pieces.positions == PositionKind::kRotary;
    const int64_t normed = normed_keys && !normed_by_attention() ? 3 : 0;
    return element_ * rows.in * width_ * (normed + (rotated ? 2 : 0));
  }

  /// Of attention without a matrix of scores: the logarithm of the sum of each row's exponentials, and
  /// dropout's bits of our own. cuDNN adds queries' gradients in fp32.
  BlockBytes composed_attention(const Rows& rows) const {
    constexpr int64_t kFloat = 4;
    if (!without_scores_) return {0, 0};
    if (plan_.own_attention()) {
      // Normed queries and keys are computed again, beside their gradients.
      const int64_t normed = normed_by_attention() ? 4 * element_ * rows.in * width_ : 0;
      return {attention_rows(rows.out), kFloat * rows.out * heads_ + normed};
    }
    return {kFloat * rows.in * heads_, kFloat * rows.in * width_};
  }

  /// What LayerNorm before attention and before the MLP keeps of a row: its mean and its scale.
  int64_t norm_statistics(const Rows& rows) const {
    constexpr int64_t kFloat = 4;
    return training_ ? 2 * kFloat * (rows.in + rows.out) : 0;
  }

  /// What GELU keeps of an element: its value, and its input or, in products' epilogues, its derivative.
  int64_t gelu_bytes() const { return element_ + slope_; }
  /// The same in pre-norm blocks. Without gradients queries, keys and values have been freed by then, which
  /// are as much as GELU's input.
  int64_t pre_norm_gelu_bytes() const { return training_ ? gelu_bytes() : element_; }
  /// How many gradients of an MLP's hidden layer are in memory at once: of its values, and of GELU's input.
  int64_t gelu_gradients() const { return plan_.gelu_in_epilogues() ? 1 : 2; }

  BlockBytes composed_sublayers(const Rows& rows) const {
    const BlockPieces pieces = options_.block_pieces();
    const bool layer_norm = pieces.norm == NormKind::kLayer, gelu = pieces.mlp == MlpKind::kGelu;
    const int64_t before = layer_norm ? 0 : element_ * rows.in * width_;
    // The sum, RMSNorm's normed one, y; GELU's values, or SwiGLU's gates and their product. Of the
    // dropout of norms' inputs, or of attention's output, the bits.
    const int64_t mlp = rows.out * inner_ * (gelu ? pre_norm_gelu_bytes() : 3 * element_);
    const int64_t after = element_ * rows.out * (layer_norm ? 2 : 3) * width_ + mlp;
    const int64_t kept = before + attention_tensors(rows) + ordered_heads(rows) +
                         composed_attention(rows).kept + after + bits((rows.in + rows.out) * width_) +
                         (layer_norm ? norm_statistics(rows) : 0);
    // Of the MLP: the gradients of y, the norm's output and the sum, and LayerNorm's output again; those of
    // the inner values and the first product, SwiGLU's of two factors.
    const int64_t of_norm = layer_norm ? 4 : 3;
    const int64_t of_mlp = element_ * rows.out * (of_norm * width_ + (gelu ? gelu_gradients() : 3) * inner_);
    const int64_t of_attention =
        attention_backward(rows) + ordered_heads(rows) + composed_attention(rows).backward - after;
    return {kept, std::max(of_mlp, of_attention), mlp};
  }

  BlockBytes gpt2_sublayers(const Rows& rows) const {
    // The sum, y; dropout's bits of both that are added to it.
    const int64_t mlp = rows.out * inner_ * pre_norm_gelu_bytes(),
                  after = element_ * rows.out * 2 * width_ + mlp;
    const int64_t kept = attention_tensors(rows) + attention_rows(rows.out) + after +
                         bits(2 * rows.out * width_) + norm_statistics(rows);
    const int64_t dropped = drops_ ? 1 : 0;  // the gradient of the MLP's output
    const int64_t of_mlp = element_ * rows.out * ((4 + dropped) * width_ + gelu_gradients() * inner_);
    return {kept, std::max(of_mlp, attention_backward(rows) - after), mlp};
  }

  BlockBytes library_composed(const Rows& rows) const {
    const BlockPieces pieces = options_.block_pieces();
    const int64_t before = element_ * rows.in * 2 * width_ + ordered_heads(rows);
    const int64_t mlp = element_ * rows.out * (pieces.mlp == MlpKind::kSwiglu ? 4 : 2) * inner_;
    const int64_t after = element_ * rows.out * 4 * width_ + mlp;
    const BlockBytes attention = composed_attention(rows);
    return {before + attention_tensors(rows) + attention.kept + after,
            library_backward(rows) + library_mask() + attention.backward, mlp};
  }

  BlockBytes library_gpt2(const Rows& rows) const {
    const int64_t kept = element_ * rows.in * width_ + attention_tensors(rows) +
                         element_ * rows.out * (3 * width_ + 2 * inner_);
    return {kept, library_backward(rows), element_ * rows.out * 2 * inner_};
  }

  const ModelOptions& options_;
  const std::vector<TaskSpaces>& spaces_;  ///< of each group; empty for grids
  int64_t states_;                         ///< of grids
  const kernels::KernelPlan& plan_;
  int64_t sequences_, element_;
  int64_t slope_;  ///< what stands for GELU's input until the backward pass, bytes an element
  int64_t width_, inner_, heads_;
  bool without_scores_;  ///< attention of chosen pieces; by cuDNN only in passes with gradients
  bool training_, drops_, all_positions_, packed_;
  int64_t context_ = 0, queries_ = 0, tokens_ = 0;
};

}  // namespace

int64_t activation_bytes(const ModelOptions& options, const ModelShape& shape,
                         const kernels::KernelPlan& plan, LossPositions positions, at::ScalarType type,
                         int64_t sequences, int64_t forward_only) {
  return Estimate(options, shape, plan, positions, type, sequences).training_bytes(forward_only);
}

int64_t inference_bytes(const ModelOptions& options, const ModelShape& shape, const kernels::KernelPlan& plan,
                        at::ScalarType type, int64_t sequences) {
  return Estimate(options, shape, plan, LossPositions::kLast, type, sequences, /*training=*/false)
      .inference_bytes();
}

}  // namespace adtrain
