#include "kernels/BlockPass.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "kernels/DrawnSeeds.h"
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
  seed = drawn_seeds(1, like);
}

BlockPass BlockPass::running(PartRun for_this) const {
  BlockPass pass = *this;
  pass.run = for_this;
  return pass;
}

at::Tensor BlockPass::words(int64_t count) const {
  return at::empty({count}, seed.options().dtype(at::kInt));
}

MaskSource BlockPass::source(KeepProbability probability, int64_t number) const {
  return {probability, seed.const_data_ptr<int64_t>(), static_cast<uint64_t>(number)};
}

at::Tensor BlockPass::hidden_dropout_mask(int64_t count, int64_t number) const {
  if (!seed.defined()) return {};
  at::Tensor bits = words(count);
  fill_dropout_mask(words_of(bits), count, source(keep_hidden, number), current_stream());
  return bits;
}

at::Tensor BlockPass::attention_dropout_mask(const AttentionRows& rows, int64_t number) const {
  if (!seed.defined()) return {};
  at::Tensor bits = words(rows.words());
  fill_attention_dropout_mask(words_of(bits), rows, source(keep_attention, number), current_stream());
  return bits;
}

}  // namespace adtrain::kernels
