#include "kernels/KeptElements.h"

#include <ATen/ATen.h>

namespace adtrain::kernels {

KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number) {
  return kept_elements(pass, at::IntArrayRef(count), number).front();
}

std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number) {
  std::vector<KeptElements> kept(counts.size());
  if (pass.keep_hidden.always()) return kept;
  constexpr int64_t kWordBits = 32, kByteBits = 8;
  const int64_t sequences = pass.draw.sequences.size(0);
  std::vector<int64_t> of_sequence, of_all;
  for (const int64_t count : counts) {
    of_sequence.push_back((count / sequences + kWordBits - 1) / kWordBits);
    of_all.push_back(of_sequence.back() * sequences);
  }
  const std::vector<at::Tensor> masks =
      pass.hidden_dropout_mask(of_sequence, number).split_with_sizes(of_all);
  for (size_t k = 0; k < kept.size(); ++k) {
    // A sequence's mask begins at a word; what its last word has too many is left out.
    const at::Tensor bytes = masks[k].view(at::kByte).view({sequences, -1});
    const at::Tensor of_elements = bytes.narrow(1, 0, counts[k] / sequences / kByteBits);
    kept[k] = {of_elements.contiguous().flatten(), pass.keep_hidden.scale()};
  }
  return kept;
}

}  // namespace adtrain::kernels
