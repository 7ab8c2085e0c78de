#include "kernels/attention/decoding/KeyValueRing.h"

#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>

#include "kernels/MatrixOperation.h"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/primitives/DeviceTraits.h"

namespace adtrain::kernels {
namespace {

/// Whether heads are contiguous and begin at multiples of 16 bytes: views of a fused projection are so.
bool is_read_in_place(const at::Tensor& heads) {
  constexpr uintptr_t kAlignment = 16;
  return heads.stride(3) == 1 && heads.stride(1) == heads.size(3) && heads.stride(0) % kVectorWidth == 0 &&
         reinterpret_cast<uintptr_t>(heads.const_data_ptr()) % kAlignment == 0;
}

HeadNormVectors head_norm_of(const NormWeights& norm) {
  return {vectors_of(norm.weight), vectors_or_null(norm.bias)};
}

DecodingNorms norms_of(const HeadNorms& norms) {
  if (!norms.defined()) return {};
  return {head_norm_of(norms.queries), head_norm_of(norms.keys), static_cast<float>(kNormEpsilon)};
}

}  // namespace

KeyValueRing KeyValueRing::like(const at::Tensor& key, int64_t window) {
  const std::vector<int64_t> shape = {key.size(0), key.size(1), window, key.size(3)};
  const auto numbers = key.options().requires_grad(false);
  return {at::empty(shape, numbers), at::empty(shape, numbers),
          at::zeros({key.size(0), key.size(1)}, numbers.dtype(at::kFloat)),
          at::zeros({key.size(0), key.size(1)}, numbers.dtype(at::kInt))};
}

at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                            const KeyValueRing& ring, const at::Tensor& tokens, DistancePenalty penalty,
                            const HeadNorms& norms) {
  const c10::cuda::CUDAGuard guard(query.device());
  const int64_t sequences = query.size(0), heads = query.size(1), head_size = query.size(3);
  const DecodingShape shape = {.sequences = static_cast<int>(sequences),
                               .heads = static_cast<int>(heads),
                               .head_size = static_cast<int>(head_size),
                               .window = static_cast<int>(ring.window()),
                               .type = type_of(query),
                               .alibi = penalty == DistancePenalty::kAlibi};
  const bool in_place = is_read_in_place(query) && is_read_in_place(key) && is_read_in_place(value) &&
                        query.stride(0) == key.stride(0) && query.stride(0) == value.stride(0);
  const auto read = [&](const at::Tensor& heads_of) { return in_place ? heads_of : heads_of.contiguous(); };
  const at::Tensor read_query = read(query), read_key = read(key), read_value = read(value);
  const at::Tensor output =
      at::empty({sequences, 1, heads * head_size}, query.options().requires_grad(false));
  const bool in_clusters =
      has_few_rings(shape, processors()) && DeviceTraits::of(query.device()).runs_small_kernels();
  const int splits =
      in_clusters ? decoding_cluster(shape, processors()) : decoding_splits(shape, processors());
  at::Tensor parts;
  if (splits > 1 && !in_clusters)
    parts = at::empty({shape.rings(), splits, head_size + 2}, output.options().dtype(at::kFloat));
  const auto attention = in_clusters ? decoding_in_clusters : decoding_attention;
  attention({.shape = shape,
             .query = read_query.const_data_ptr(),
             .key = read_key.const_data_ptr(),
             .value = read_value.const_data_ptr(),
             .stride = read_query.stride(0),
             .norms = norms_of(norms),
             .keys = ring.keys.data_ptr(),
             .values = ring.values.data_ptr(),
             .key_norms = ring.key_norms.data_ptr<float>(),
             .tokens = tokens.const_data_ptr<int64_t>(),
             .splits = splits,
             .early_keys = decoding_early_keys(shape, processors()),
             .processors = processors(),
             .parts = parts.defined() ? parts.data_ptr<float>() : nullptr,
             .arrivals = static_cast<unsigned*>(ring.arrivals.data_ptr()),
             .output = output.data_ptr()},
            current_stream());
  return output;
}

}  // namespace adtrain::kernels
