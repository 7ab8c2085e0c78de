#include "evaluation/gpu/PackedNetwork.h"

#include <map>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "evaluation/gpu/RolloutKernel.h"
#include "model/Attention.h"

namespace adtrain {
namespace {

constexpr int64_t kWidest = 128, kWidestInner = 512, kActionsOfKernel = gpu::kActionOutputs;

/// A model's parameters by name, in fp32 on the CPU.
class Weights {
 public:
  explicit Weights(AlgorithmDistillation& model) {
    for (const NamedTensor& named : model.parameters().named()) {
      tensors_[named.name] = named.tensor.detach().to(at::kCPU, at::kFloat);
    }
  }
  const at::Tensor& operator[](const std::string& name) const { return tensors_.at(name); }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

/// The rows of a head's queries or keys, (heads · size, …), permuted so that the two numbers that rope
/// rotates as a pair are adjacent.
at::Tensor side_by_side(const at::Tensor& rows, int64_t heads) {
  const int64_t half = rows.size(0) / heads / 2;
  return rows.reshape({heads, 2, half, -1}).transpose(1, 2).reshape(rows.sizes());
}

/// The rows of a and b, interleaved.
at::Tensor alternating(const at::Tensor& a, const at::Tensor& b) {
  return at::stack({a, b}, 1).flatten(0, 1);
}

}  // namespace

std::optional<std::string> PackedNetwork::objection(const ModelOptions& options, const ModelShape& shape) {
  const int64_t head = options.head_size();
  if (options.is_plugin()) return "it is a plug-in's";
  if (options.block() == TransformerBlock::kGpt2) return "GPT-2 reads three tokens a step";
  if (options.composed()) return "its blocks are composed of chosen pieces";
  if (options.tf_n_embd % 32 != 0 || options.tf_n_embd > kWidest) {
    return fmt::format("tf_n_embd is {} (expected 32, 64, 96 or 128)", options.tf_n_embd);
  }
  if (head != 8 && head != 16 && head != 32)
    return fmt::format("heads are {} wide (expected 8, 16 or 32)", head);
  if (options.inner_width() % 16 != 0 || options.inner_width() > kWidestInner) {
    return fmt::format("the MLP is {} wide (expected a multiple of 16, at most {})", options.inner_width(),
                       kWidestInner);
  }
  if (options.tf_n_layer > gpu::kMostLayers) {
    return fmt::format("it has {} layers (expected at most {})", options.tf_n_layer, gpu::kMostLayers);
  }
  if (options.longest_context() > gpu::kMostTokens) {
    return fmt::format("it reads {} tokens (expected at most {})", options.longest_context(),
                       gpu::kMostTokens);
  }
  if (shape.num_actions != kActionsOfKernel) return fmt::format("it has {} actions", shape.num_actions);
  return std::nullopt;
}

PackedNetwork::PackedNetwork(AlgorithmDistillation& model) : device_(model.parameters().flat().device()) {
  const at::NoGradGuard no_grad;
  const ModelOptions& options = model.options();
  if (const auto reason = objection(options, model.shape())) throw std::invalid_argument(*reason);
  view_.width = static_cast<int>(options.tf_n_embd);
  view_.heads = static_cast<int>(options.tf_n_head);
  view_.layer_count = static_cast<int>(options.tf_n_layer);
  view_.inner = static_cast<int>(options.inner_width());
  view_.pre_norm = options.block() == TransformerBlock::kPreNorm;
  view_.compressed = options.compressed();
  if (view_.pre_norm) {
    pack_pre_norm(model);
  } else {
    pack_post_norm(model);
  }
}

void PackedNetwork::pack_post_norm(AlgorithmDistillation& model) {
  const Weights weights(model);
  const at::Tensor& types = weights["token_type_embedding.weight"];
  view_.transition = keep(weights["embed_context.weight"].t());
  view_.transition_bias = keep(weights["embed_context.bias"] + types[kTransition]);
  view_.query = keep(weights["embed_query_state.weight"]);
  view_.positions = keep(weights["pos_embedding"].squeeze(0));
  at::Tensor head = weights["pred_action.weight"], head_bias = weights["pred_action.bias"];
  if (view_.compressed) {
    view_.region_start = keep(weights["compress_start_token"].flatten() + types[kCompress]);
    view_.region_end = keep(weights["compress_end_token"].flatten() + types[kEndCompress]);
    head = at::cat({head, weights["pred_token_type.weight"]});
    head_bias = at::cat({head_bias, weights["pred_token_type.bias"]});
  }
  view_.head = keep(head);
  view_.head_bias = keep(head_bias);
  view_.outputs = static_cast<int>(head.size(0));
  for (int layer = 0; layer < view_.layer_count; ++layer) {
    const std::string name = fmt::format("transformer_encoder.layers.{}.", layer);
    const auto linear = [&](const std::string& part) {
      return pack(weights[name + part + ".weight"], weights[name + part + ".bias"]);
    };
    const auto norm = [&](const std::string& part) {
      return gpu::PackedNorm{keep(weights[name + part + ".weight"]), keep(weights[name + part + ".bias"])};
    };
    view_.layers[layer] = {.attention = pack(weights[name + "self_attn.in_proj_weight"],
                                             weights[name + "self_attn.in_proj_bias"]),
                           .output = linear("self_attn.out_proj"),
                           .up = linear("linear1"),
                           .down = linear("linear2"),
                           .norm_1 = norm("norm1"),
                           .norm_2 = norm("norm2")};
  }
}

void PackedNetwork::pack_pre_norm(AlgorithmDistillation& model) {
  const Weights weights(model);
  view_.transition = keep(weights["embed_context.weight"].t());
  view_.transition_bias = keep(weights["embed_context.bias"]);
  view_.query = keep(weights["embed_query_state.weight"]);
  view_.head = keep(weights["pred_action.weight"]);
  view_.head_bias = keep(weights["pred_action.bias"]);
  view_.outputs = static_cast<int>(kActionsOfKernel);
  const Rotary rotary =
      Rotary::of(at::arange(model.options().longest_context()), model.options().head_size());
  view_.cosines = keep(rotary.cosines);
  view_.sines = keep(rotary.sines);
  for (int layer = 0; layer < view_.layer_count; ++layer) {
    const std::string name = fmt::format("transformer.blocks.{}.", layer);
    // (heads, 3, head size, …): queries, keys and values of each head
    const auto third = [&](const std::string& part, int64_t which) {
      const at::Tensor& fused = weights[name + "attn.attn." + part];
      at::Tensor rows =
          fused.reshape({view_.heads, 3, -1, fused.dim() == 2 ? fused.size(1) : 1}).select(1, which);
      rows = rows.reshape({view_.width, -1});
      return which == 2 ? rows : side_by_side(rows, view_.heads);
    };
    const auto all = [&](const std::string& part) {
      return at::cat({third(part, 0), third(part, 1), third(part, 2)});
    };
    view_.layers[layer] = {
        .attention = pack(all("weight"), all("bias").flatten()),
        .output = pack(weights[name + "attn.proj.weight"], weights[name + "attn.proj.bias"]),
        .up = pack(
            alternating(weights[name + "mlp.swiglu.w1.weight"], weights[name + "mlp.swiglu.w2.weight"]), {}),
        .down = pack(weights[name + "mlp.swiglu.w3.weight"], {}),
        .norm_1 = {keep(weights[name + "norm_1.weight"]), nullptr},
        .norm_2 = {keep(weights[name + "norm_2.weight"]), nullptr}};
  }
}

const float* PackedNetwork::keep(const at::Tensor& tensor) {
  storage_.push_back(tensor.contiguous().to(device_));
  return storage_.back().const_data_ptr<float>();
}

gpu::PackedLinear PackedNetwork::pack(const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const at::Tensor upper = weight.to(at::kBFloat16);
  const at::Tensor lower = (weight - upper.to(at::kFloat)).to(at::kBFloat16);
  // (upper or lower, group, output g, step, half of the step, pair i, number) in RolloutNetwork.h's order
  const at::Tensor fragments = at::stack({upper, lower})
                                   .view({2, outputs / 8, 8, inputs / 16, 2, 4, 2})
                                   .permute({1, 3, 2, 5, 0, 4, 6})
                                   .contiguous();
  storage_.push_back(fragments.to(device_));
  const void* data = storage_.back().const_data_ptr();
  return {static_cast<const uint4*>(data), keep(bias.defined() ? bias : at::zeros({outputs})),
          static_cast<int>(inputs), static_cast<int>(outputs)};
}

}  // namespace adtrain
