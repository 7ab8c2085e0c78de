#include "model/kernels/fused/FusedBlock.h"

#include <algorithm>
#include <array>
#include <limits>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/Cuda.h"
#include "model/kernels/GradientPlace.h"
#include "model/kernels/PartialSums.h"
#include "model/kernels/fused/AttentionBackward.h"
#include "model/kernels/fused/BlockForward.h"
#include "model/kernels/fused/KernelOperation.h"
#include "model/kernels/fused/MlpBackward.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

constexpr int64_t kMostTokens = 256;
constexpr size_t kParameters = 12, kOfAttention = 6;  ///< the first six are the attention half's
/// {width, head size}: those that the kernels are instantiated for.
constexpr std::array<std::array<int64_t, 2>, 6> kShapes = {
    {{32, 8}, {32, 16}, {32, 32}, {64, 8}, {64, 16}, {64, 32}}};

constexpr int kSharedBytes = 227 * 1024;  ///< of a thread block, at most

bool is_large_enough(const at::Device& device) {
  int capability = 0, shared_bytes = 0;
  gpu::check(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device.index()),
             "cudaDeviceGetAttribute");
  gpu::check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()),
             "cudaDeviceGetAttribute");
  return capability >= 9 && shared_bytes >= kSharedBytes;
}

/// Dropout's bits of one block: those of the attention, then those of the three hidden places.
class BlockBits {
 public:
  BlockBits(const BlockShape& shape, const FusedPass& pass, int64_t number)
      : attention_words_(int64_t{shape.sequences} * shape.heads * ((shape.tokens + 31) / 32) * shape.rows),
        row_words_(shape.all_rows() * shape.width / 32),
        attention_scale_(pass.keep_attention.scale()),
        hidden_scale_(pass.keep_hidden.scale()),
        drops_(pass.seed.defined()) {
    if (!drops_) return;
    words_ =
        at::empty({attention_words_ + kHiddenRowWords * row_words_}, pass.seed.options().dtype(at::kInt));
    const cudaStream_t stream = current_stream();
    const auto* seed = pass.seed.data_ptr<int64_t>();
    const auto stream_of_seed = static_cast<uint64_t>(2 * number);
    fill_keep_bits(words(0), attention_words_, pass.keep_attention, seed, stream_of_seed, stream);
    fill_keep_bits(words(attention_words_), kHiddenRowWords * row_words_, pass.keep_hidden, seed,
                   stream_of_seed + 1, stream);
  }

  KeepBits keep() const {
    if (!drops_) return {nullptr, nullptr, nullptr, nullptr, 1.0f, 1.0f};
    const int64_t hidden = attention_words_;
    return {words(0),         words(hidden), words(hidden + row_words_), words(hidden + 5 * row_words_),
            attention_scale_, hidden_scale_};
  }

 private:
  static constexpr int64_t kHiddenRowWords =
      1 + 4 + 1;  ///< projection, inner and output, in words of one width

  uint32_t* words(int64_t first) const { return static_cast<uint32_t*>(words_.data_ptr()) + first; }

  int64_t attention_words_, row_words_;
  float attention_scale_, hidden_scale_;
  bool drops_;
  at::Tensor words_;
};

BlockWeights weights_of(at::TensorList parameters) {
  std::array<const __nv_bfloat16*, kParameters> at;
  std::transform(parameters.begin(), parameters.end(), at.begin(), values_of);
  return {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9], at[10], at[11]};
}

/// What a forward pass leaves for its backward pass.
struct Remembered : torch::CustomClassHolder {
  Remembered(const at::Tensor& input, const BlockShape& block, BlockBits dropout, GradientSink* to)
      : shape(block), bits(std::move(dropout)), sink(to), x(input) {
    const auto like = x.options().requires_grad(false), fp32 = like.dtype(at::kFloat);
    read = at::empty({shape.all_rows(), shape.width}, like);
    log_sums = at::empty({shape.sequences, shape.heads, shape.rows}, fp32);
    for (Norm* norm : {&norm1, &norm2}) {
      norm->normed = at::empty({shape.all_rows(), shape.width}, like);
      norm->inverse = at::empty({shape.all_rows()}, fp32);
    }
  }

  BlockActivations activations() const {
    return {values_of(x),
            values_of(read),
            log_sums.data_ptr<float>(),
            values_of(norm1.normed),
            norm1.inverse.data_ptr<float>(),
            values_of(norm2.normed),
            norm2.inverse.data_ptr<float>()};
  }

  struct Norm {
    at::Tensor normed, inverse;
  };
  BlockShape shape;
  BlockBits bits;
  GradientSink* sink;
  at::Tensor x, read, log_sums;
  Norm norm1, norm2;
};

class FusedBlock : public autograd::Function<FusedBlock> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& x,
                            at::TensorList parameters, int64_t queries, int64_t rows, int64_t number,
                            const FusedPass& pass) {
    const c10::cuda::CUDAGuard guard(x.device());
    const BlockShape shape = {static_cast<int>(x.size(0)),  static_cast<int>(x.size(1) - queries),
                              static_cast<int>(rows),       static_cast<int>(x.size(2)),
                              static_cast<int>(pass.heads), /*causal=*/true,
                              static_cast<int>(queries)};
    auto remembered =
        c10::make_intrusive<Remembered>(x.contiguous(), shape, BlockBits(shape, pass, number), pass.sink);
    at::Tensor y = at::empty({x.size(0), rows, x.size(2)}, x.options().requires_grad(false));
    block_forward(shape, weights_of(parameters), remembered->bits.keep(), remembered->activations(),
                  values_of(y), current_stream());
    context->save_for_backward(parameters.vec());
    context->saved_data["remembered"] = c10::IValue::make_capsule(std::move(remembered));
    return y;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const auto remembered = taken_from<Remembered>(context);
    const autograd::variable_list parameters = context->get_saved_variables();
    GradientPlace place(parameters, remembered->sink);
    const at::Tensor dx = backward_to(*remembered, weights_of(parameters), gradients[0], place);
    autograd::variable_list result = place.finish();
    result.insert(result.begin(), dx);
    result.resize(result.size() + 4);  // queries, rows, number and pass have no gradients
    return result;
  }

 private:
  static at::Tensor backward_to(const Remembered& remembered, const BlockWeights& weights,
                                const at::Tensor& gradient, const GradientPlace& place) {
    const c10::cuda::CUDAGuard guard(gradient.device());
    const cudaStream_t stream = current_stream();
    const BlockShape& shape = remembered.shape;
    const at::Tensor of_attention = place.of(0, kOfAttention),
                     of_mlp = place.of(kOfAttention, kParameters - kOfAttention);
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor dx1 = at::empty_like(dy),
                     dx = at::empty_like(remembered.x, remembered.x.options().requires_grad(false));
    const auto parts_for = [&](int count, const at::Tensor& sum) {
      return at::empty({count, sum.numel()}, sum.options());
    };
    const auto add = [&](const at::Tensor& parts, const at::Tensor& sum) {
      add_parts(parts.data_ptr<float>(), static_cast<int>(parts.size(0)), sum.numel(), sum.data_ptr<float>(),
                stream);
    };

    const at::Tensor mlp_parts = parts_for(mlp_backward_parts(shape), of_mlp);
    mlp_backward(shape, weights, remembered.bits.keep(), remembered.activations(), values_of(dy),
                 values_of(dx1), mlp_parts.data_ptr<float>(), stream);
    add(mlp_parts, of_mlp);
    const at::Tensor attention_parts = parts_for(attention_backward_parts(shape), of_attention);
    const at::Tensor carried = at::empty({attention_backward_carried(shape)}, dx.options());
    attention_backward(shape, weights, remembered.bits.keep(), remembered.activations(), values_of(dx1),
                       values_of(dx), attention_parts.data_ptr<float>(), values_of(carried), stream);
    add(attention_parts, of_attention);
    return dx;
  }
};

}  // namespace

std::optional<std::string> why_no_fused_blocks(const FusedBlockSizes& sizes, const at::Device& device) {
  const std::array<int64_t, 2> shape = {sizes.width, sizes.heads > 0 ? sizes.width / sizes.heads : 0};
  if (std::find(kShapes.begin(), kShapes.end(), shape) == kShapes.end()) {
    return fmt::format(
        "there are none for width {} with heads of {}; they are for width 32 or 64 and heads of 8, 16 or "
        "32",
        shape[0], shape[1]);
  }
  if (sizes.inner != 4 * sizes.width) {
    return fmt::format("the MLP is {} wide; they are for four times the width", sizes.inner);
  }
  if (sizes.tokens > kMostTokens) {
    return fmt::format("sequences have {} tokens; they are for at most {}", sizes.tokens, kMostTokens);
  }
  if (!is_large_enough(device)) {
    return fmt::format("they are for GPUs of compute capability 9.0 and later with {} KiB of shared memory",
                       kSharedBytes / 1024);
  }
  return std::nullopt;
}

FusedPass::FusedPass(const at::Tensor& like, int64_t heads_of_block, double attention_rate,
                     double hidden_rate, GradientSink* gradients_to)
    : heads(heads_of_block), keep_attention(attention_rate), keep_hidden(hidden_rate), sink(gradients_to) {
  if (keep_attention.always() && keep_hidden.always()) return;
  const auto of_seed = at::TensorOptions(like.device()).dtype(at::kLong);
  seed = at::randint(std::numeric_limits<int64_t>::max(), {1}, of_seed);
}

at::Tensor fused_block(const at::Tensor& x, const std::vector<at::Tensor>& parameters, int64_t queries,
                       int64_t rows, int64_t number, const FusedPass& pass) {
  return FusedBlock::apply(x, at::TensorList(parameters), queries, rows, number, pass);
}

}  // namespace adtrain::kernels
