#include "kernels/KeptElements.h"

#include <numeric>

#include <ATen/ATen.h>

namespace adtrain::kernels {

KeptElements kept_elements(const BlockPass& pass, int64_t count, int64_t number) {
  return kept_elements(pass, at::IntArrayRef(count), number).front();
}

std::vector<KeptElements> kept_elements(const BlockPass& pass, at::IntArrayRef counts, int64_t number) {
  std::vector<KeptElements> kept(counts.size());
  if (pass.keep_hidden.always()) return kept;
  constexpr int kWordBits = 32;
  std::vector<int64_t> words;
  for (const int64_t count : counts) words.push_back((count + kWordBits - 1) / kWordBits);
  const int64_t total = std::accumulate(words.begin(), words.end(), int64_t{0});
  const std::vector<at::Tensor> bits = pass.hidden_dropout_mask(total, number).split_with_sizes(words);
  for (size_t k = 0; k < kept.size(); ++k) kept[k] = {bits[k].view(at::kByte), pass.keep_hidden.scale()};
  return kept;
}

}  // namespace adtrain::kernels
