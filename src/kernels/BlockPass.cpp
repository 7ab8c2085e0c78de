#include "kernels/BlockPass.h"

#include <algorithm>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/Random.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {

BlockPass::BlockPass(const at::Tensor& like, int64_t heads_of_block, double dropped_attention,
                     double hidden_rate, bool with_own_attention, MainGradients* gradients_to)
    : heads(heads_of_block),
      own_attention(with_own_attention),
      trains(at::GradMode::is_enabled()),
      attention_rate(dropped_attention),
      keep_attention(dropped_attention),
      keep_hidden(hidden_rate),
      main_gradients(gradients_to) {
  if (keep_attention.always() && keep_hidden.always()) return;
  draw_is_older = DropoutScope::stream() != nullptr && DropoutScope::stream()->seed.defined();
  draw = DropoutDraw::next(like.size(0), like.device());
}

BlockPass BlockPass::running(PartRun for_this) const {
  BlockPass pass = *this;
  pass.run = for_this;
  return pass;
}

at::Tensor BlockPass::words(int64_t count) const {
  return at::empty({count}, draw.seed.options().dtype(at::kInt));
}

MaskSource BlockPass::source(KeepProbability probability, int64_t number) const {
  return {probability, draw.seed.const_data_ptr<int64_t>(), seed_of(draw.place, number),
          draw.sequences.const_data_ptr<int64_t>(), draw.sequences.size(0)};
}

MaskMatrices BlockPass::matrices_of(at::IntArrayRef words_of_sequence) {
  if (words_of_sequence.size() > MaskMatrices::kMost)
    throw std::logic_error("Dropout masks of too many matrices at once.");
  MaskMatrices matrices = {static_cast<int>(words_of_sequence.size()), {}};
  std::copy(words_of_sequence.begin(), words_of_sequence.end(), matrices.words);
  return matrices;
}

at::Tensor BlockPass::hidden_dropout_mask(at::IntArrayRef words_of_sequence, int64_t number) const {
  if (!draw.seed.defined()) return {};
  const MaskMatrices matrices = matrices_of(words_of_sequence);
  at::Tensor bits = words(draw.sequences.size(0) * matrices.words_of_sequence());
  fill_dropout_mask(words_of(bits), matrices, source(keep_hidden, number), current_stream());
  return bits;
}

at::Tensor BlockPass::attention_dropout_mask(const AttentionRows& rows, int64_t number) const {
  if (!draw.seed.defined()) return {};
  at::Tensor bits = words(rows.words());
  fill_attention_dropout_mask(words_of(bits), rows, source(keep_attention, number), current_stream());
  return bits;
}

BlockPass::Masks BlockPass::dropout_masks(const AttentionRows& rows, at::IntArrayRef words_of_sequence,
                                          int64_t number, bool beside_kernel_ahead) const {
  if (!draw.seed.defined()) return {};
  const MaskMatrices matrices = matrices_of(words_of_sequence);
  Masks masks = {words(rows.words()), words(draw.sequences.size(0) * matrices.words_of_sequence())};
  fill_block_dropout_masks(words_of(masks.attention), rows, source(keep_attention, number),
                           words_of(masks.hidden), matrices, source(keep_hidden, number + 1),
                           beside_kernel_ahead, current_stream());
  return masks;
}

}  // namespace adtrain::kernels
