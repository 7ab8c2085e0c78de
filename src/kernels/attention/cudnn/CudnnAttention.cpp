#include "kernels/attention/cudnn/CudnnAttention.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/DropoutDraw.h"
#include "kernels/attention/cudnn/CudnnGraphs.h"

namespace adtrain::kernels {
namespace {

namespace autograd = torch::autograd;

CudnnAttentionCase::Strides strides_of(const at::Tensor& heads) {
  return {heads.stride(0), heads.stride(1), heads.stride(2), heads.stride(3)};
}

enum class Pass { kForward, kBackward };

CudnnAttentionCase case_of(Pass pass, const at::Tensor& qkv, const at::Tensor& output,
                           DistancePenalty penalty, double dropout_rate) {
  const bool backward = pass == Pass::kBackward;
  return {.backward = backward,
          .type = qkv.scalar_type(),
          .device = qkv.get_device(),
          .sizes = {qkv.size(1), qkv.size(2), qkv.size(3), qkv.size(4)},
          .in = strides_of(qkv[0]),
          .out = strides_of(output),
          .alibi = penalty == DistancePenalty::kAlibi,
          .deterministic = backward && at::globalContext().deterministicAlgorithms(),
          .dropout_rate = dropout_rate};
}

void give(CudnnMemory& memory, CudnnTensor place, const at::Tensor& tensor) {
  memory[static_cast<int64_t>(place)] = tensor.data_ptr();
}

/// The memory of queries, keys and values (3, …), or of their gradients; of seed and offset, where there is
/// dropout.
CudnnMemory memory_of(const at::Tensor& qkv, const at::Tensor& seed) {
  CudnnMemory memory;
  give(memory, CudnnTensor::kQueries, qkv[0]);
  give(memory, CudnnTensor::kKeys, qkv[1]);
  give(memory, CudnnTensor::kValues, qkv[2]);
  if (seed.defined()) {
    give(memory, CudnnTensor::kSeed, seed);
    give(memory, CudnnTensor::kOffset, seed);  // any number that is the same in both passes
  }
  return memory;
}

/// (B, tokens, heads · head size) as (B, heads, tokens, head size).
at::Tensor by_heads(const at::Tensor& joined, int64_t heads) {
  return joined.unflatten(-1, {heads, -1}).transpose(1, 2);
}

class CudnnAttention : public autograd::Function<CudnnAttention> {
 public:
  static at::Tensor forward(autograd::AutogradContext* context, const at::Tensor& qkv,
                            DistancePenalty penalty, double dropout_rate) {
    const c10::cuda::CUDAGuard on_device(qkv.device());
    const int64_t heads = qkv.size(2);
    const auto like = qkv.options().requires_grad(false);
    at::Tensor output = at::empty({qkv.size(1), qkv.size(3), heads * qkv.size(4)}, like);
    at::Tensor statistics = at::empty({qkv.size(1), heads, qkv.size(3)}, like.dtype(at::kFloat));
    at::Tensor seed;
    if (dropout_rate > 0) seed = DropoutDraw::next(qkv.size(1), qkv.device()).of_whole_batch();

    CudnnMemory memory = memory_of(qkv, seed);
    give(memory, CudnnTensor::kOutput, output);
    give(memory, CudnnTensor::kStatistics, statistics);
    execute(case_of(Pass::kForward, qkv, by_heads(output, heads), penalty, dropout_rate), memory);

    context->save_for_backward({qkv, output, statistics, seed});
    context->saved_data["alibi"] = penalty == DistancePenalty::kAlibi;
    context->saved_data["dropout_rate"] = dropout_rate;
    return output;
  }

  static autograd::variable_list backward(autograd::AutogradContext* context,
                                          const autograd::variable_list& gradients) {
    const autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor &qkv = saved[0], &output = saved[1];
    const c10::cuda::CUDAGuard on_device(qkv.device());
    const at::Tensor d_output = gradients[0].contiguous();
    at::Tensor d_qkv = at::empty_strided(qkv.sizes(), qkv.strides(), qkv.options().requires_grad(false));

    CudnnMemory memory = memory_of(qkv, saved[3]);
    give(memory, CudnnTensor::kOutput, output);
    give(memory, CudnnTensor::kStatistics, saved[2]);
    give(memory, CudnnTensor::kOutputGradient, d_output);
    give(memory, CudnnTensor::kQueryGradients, d_qkv[0]);
    give(memory, CudnnTensor::kKeyGradients, d_qkv[1]);
    give(memory, CudnnTensor::kValueGradients, d_qkv[2]);
    const auto penalty =
        context->saved_data["alibi"].toBool() ? DistancePenalty::kAlibi : DistancePenalty::kNone;
    execute(case_of(Pass::kBackward, qkv, by_heads(output, qkv.size(2)), penalty,
                    context->saved_data["dropout_rate"].toDouble()),
            memory);
    return {d_qkv, {}, {}};
  }
};

}  // namespace

at::Tensor cudnn_attention(const at::Tensor& qkv, DistancePenalty penalty, double dropout_rate) {
  return CudnnAttention::apply(qkv, penalty, dropout_rate);
}

}  // namespace adtrain::kernels
