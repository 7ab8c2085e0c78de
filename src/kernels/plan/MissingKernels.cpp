#include "kernels/plan/MissingKernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "kernels/attention/MultiheadAttention.h"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/embedding/StepEmbedding.h"
#include "kernels/embedding/TokenEmbedding.h"
#include "kernels/encoder/SymbolicEncoder.h"
#include "kernels/loss/LinearCrossEntropy.h"
#include "kernels/norm/NormKernels.h"

namespace adtrain::kernels {
namespace {

constexpr int64_t kWidestEmbedding = 1024;
constexpr const char* kPacked = "it reads whole rows, and sequence_packing puts several histories into one";

/// Why there are none; nothing where there are some.
Why why_not_ad(const NetworkShape& network, const std::string& they_are) {
  if (network.is_ad()) return std::nullopt;
  return network.block == NetworkShape::Block::kComposed
             ? they_are + " for the networks pre_norm and post_norm as published, not for chosen pieces"
             : they_are + " for model AD";
}

/// {width, head size} of the whole-block kernels that are compiled.
constexpr std::array<std::array<int64_t, 2>, 6> kWholeBlocks = {
    {{32, 8}, {32, 16}, {32, 32}, {64, 8}, {64, 16}, {64, 32}}};

Why why_no_large_kernels(const DeviceTraits& device, at::ScalarType type, bool in_fp16) {
  if (!device.is_gpu) return "they are for GPUs";
  if (!device.runs_large_kernels()) {
    return fmt::format("they are for GPUs of compute capability 9.0 and later with {} KiB of shared memory",
                       DeviceTraits::hopper().shared_bytes_of_a_block / 1024);
  }
  if (type == at::kBFloat16 || (in_fp16 && type == at::kHalf)) return std::nullopt;
  return in_fp16 ? "they are for mixed_precision: bf16 or fp16" : "they are for mixed_precision: bf16";
}

Why why_no_whole_blocks(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  if (network.quantised) return kQuantised;
  if (auto why = why_not_ad(network, "they are")) return why;
  if (device.is_gpu && !device.multiplies_by_warpgroups())
    return "they are for GPUs of compute capability 9.0 alone";
  if (auto why = why_no_large_kernels(device, type, /*in_fp16=*/false)) return why;
  const std::array<int64_t, 2> shape = {network.width, network.head_size()};
  if (std::find(kWholeBlocks.begin(), kWholeBlocks.end(), shape) == kWholeBlocks.end()) {
    return fmt::format(
        "there are none for width {} with heads of {}; they are for width 32 or 64 and heads of 8, 16 or "
        "32",
        shape[0], shape[1]);
  }
  if (network.inner_width != 4 * network.width) {
    return fmt::format("the MLP is {} wide; they are for four times the width", network.inner_width);
  }
  if (network.tokens > kMostTokens) {
    return fmt::format("sequences have {} tokens; they are for at most {}", network.tokens, kMostTokens);
  }
  return std::nullopt;
}

/// The products of warpgroups that stream keys and values exist on Hopper alone.
Why why_no_streaming_kernels(const DeviceTraits& device) {
  if (device.multiplies_by_warpgroups()) return std::nullopt;
  return "the kernels that stream keys and values are for GPUs of compute capability 9.0 alone";
}

/// Whether cuDNN's attention runs the network and is faster in training than our kernels that stream keys and
/// values. With ALiBi these leave keys out, and norms of queries and keys are in them. Measured in bf16 and,
/// without dropout and with heads of 64, in fp16 (docs/benchmarks.md, "Long contexts"): from 256 to 2048
/// tokens with heads of 32, and to 4096 with dropout, cuDNN's took longer throughout. With heads of 64 its
/// advantage grows with the tokens.
bool cudnn_is_faster(const NetworkShape& network, at::ScalarType type) {
  if (network.two_streams) return false;  // it is for one
  constexpr int64_t kSmallHead = 32;
  if (network.packed || network.quantised) return false;
  if (network.alibi || network.normed_heads) return false;
  if (network.head_size() <= kSmallHead || network.drops_attention) return false;
  const int64_t most_tokens_of_ours = type == at::kHalf ? 1024 : 2048;
  return network.tokens > most_tokens_of_ours;
}

/// Why the attention of networks of chosen pieces does not run our kernels that stream keys and values.
Why why_no_streamed_attention(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  if (auto why = why_no_large_kernels(device, type, /*in_fp16=*/true)) return why;
  if (auto why = why_no_streaming_kernels(device)) return why;
  const int64_t head_size = network.head_size();
  if (head_size != 32 && head_size != 64 && (head_size != 16 || network.normed_heads))
    return fmt::format(
        "heads have {} features; it is for 32 and 64, and 16 without tf_qk_norm or with rotary positions",
        head_size);
  if (!cudnn_is_faster(network, type)) return std::nullopt;
  return fmt::format(
      "cuDNN's is faster with heads of {} and {} tokens, without ALiBi, norms of queries and keys and "
      "tf_attn_dropout",
      network.head_size(), network.tokens);
}

Why why_no_own_attention(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  if (network.block == NetworkShape::Block::kComposed)
    return why_no_streamed_attention(network, device, type);
  if (!network.is_gpt2()) {
    if (auto why = why_not_ad(network, "it is")) return why;
  }
  const int64_t head_size = network.head_size();
  const bool streams = streams_keys(network, type);
  if (auto why = why_no_large_kernels(device, type, /*in_fp16=*/streams)) return why;
  if (network.width % kGroupColumns != 0 ||
      (head_size != 8 && head_size != 16 && head_size != 32 && head_size != 64)) {
    return fmt::format(
        "there is none for width {} with heads of {}; it is for multiples of {} and heads of 8, 16, 32 or 64",
        network.width, head_size, kGroupColumns);
  }
  if (head_size < kSmallestStreamingHead && network.tokens > kMostTokens) {
    return fmt::format("sequences have {} tokens; with heads of {} it is for at most {}", network.tokens,
                       head_size, kMostTokens);
  }
  if (!streams) return std::nullopt;
  return why_no_streaming_kernels(device);
}

/// Why attention between plain operators does not run cuDNN's kernels.
Why why_no_cudnn_attention(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  constexpr int kAmpere = 80;
  constexpr int64_t kLeastTokens = 64, kHeadStep = 8, kLargestHead = 128;
  if (network.block != NetworkShape::Block::kComposed) return "it is for networks of chosen pieces";
  if (network.packed) return kPacked;
  if (network.quantised) return "it is for passes with gradients, and these weights are quantised";
  if (!why_no_streamed_attention(network, device, type)) return "our own is faster";
  if (!device.is_gpu || device.compute_capability < kAmpere) {
    return "it is for GPUs of compute capability 8.0 and later";
  }
  if (type != at::kBFloat16 && type != at::kHalf) return "it is for mixed_precision: bf16 or fp16";
  if (network.two_streams) return "it is for one causal stream of tokens: token_layout: previous";
  if (network.tokens < kLeastTokens) {
    return fmt::format("sequences have {} tokens; it is for {} and more", network.tokens, kLeastTokens);
  }
  if (network.head_size() % kHeadStep != 0 || network.head_size() > kLargestHead) {
    return fmt::format("heads have {} features; it is for multiples of {} up to {}", network.head_size(),
                       kHeadStep, kLargestHead);
  }
  if (network.alibi && !std::has_single_bit(static_cast<uint64_t>(network.heads))) {
    return fmt::format("ALiBi's slopes of {} heads are others in cuDNN; it is for 1, 2, 4, 8, … heads",
                       network.heads);
  }
  return std::nullopt;
}

/// Why rollouts do not run our own attention over kept keys and values.
Why why_no_decoding_attention(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  constexpr int kAmpere = 80;
  if (network.block == NetworkShape::Block::kOther || network.padded)
    return "this network keeps no keys and values";
  if (!device.is_gpu || device.compute_capability < kAmpere) {
    return "it is for GPUs of compute capability 8.0 and later";
  }
  if (type != at::kBFloat16 && type != at::kHalf) return "it is for mixed_precision: bf16 or fp16";
  if (!is_decoding_head(network.head_size()))
    return fmt::format("heads have {} features; it is for 32, 64 and 128", network.head_size());
  return std::nullopt;
}

Why why_no_sublayers(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  const bool composed = network.block == NetworkShape::Block::kComposed;
  if (!composed) {
    if (network.quantised) return kQuantised;
    if (!network.is_gpt2()) {
      if (auto why = why_not_ad(network, "they are")) return why;
    }
  }
  if (!device.is_gpu) return "they are for GPUs";
  if (type != at::kBFloat16 && type != at::kHalf) return "they are for mixed_precision: bf16 or fp16";
  if (network.width % kVectorWidth != 0 || network.width > kMaxNormWidth ||
      network.inner_width % kVectorWidth != 0) {
    return fmt::format(
        "the width is {}, that of the MLP {}; they are for multiples of {}, and widths up to {}",
        network.width, network.inner_width, kVectorWidth, kMaxNormWidth);
  }
  if (!composed) return std::nullopt;
  if (!network.attention_biases || network.gelu != network.mlp_biases) {
    return fmt::format(
        "{} has {} biases; they are for GELU with tf_bias: all and SwiGLU with tf_bias: attention",
        network.gelu ? "GELU" : "SwiGLU",
        !network.attention_biases ? "no"
        : network.mlp_biases      ? "all"
                                  : "only attention's");
  }
  if (network.quantised || !why_no_streamed_attention(network, device, type)) return std::nullopt;
  if (auto why = why_no_cudnn_attention(network, device, type))
    return "they stand around our own attention or cuDNN's, and " + *why;
  return std::nullopt;
}

/// Why the embedding or the loss of a network over actions is not fused; the numbers are those of its
/// kernels, nothing where they may be any.
Why why_not_fused(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type,
                  std::optional<int64_t> most_actions, std::optional<int64_t> most_width) {
  constexpr int64_t kWidthStep = 32;
  if (network.block == NetworkShape::Block::kOther) return "it is for adtrain's own networks";
  if (network.padded) return "it is for networks without compressed context";
  if (!device.runs_small_kernels()) return "it is for GPUs of compute capability 9.0 and later";
  if (type != at::kBFloat16 && type != at::kHalf) return "it is for mixed_precision: bf16 or fp16";
  if (network.width % kWidthStep != 0 || (most_width && network.width > *most_width)) {
    return fmt::format("the width is {}; it is for multiples of {}{}", network.width, kWidthStep,
                       most_width ? fmt::format(" up to {}", *most_width) : "");
  }
  if (most_actions && network.actions > *most_actions) {
    return fmt::format("there are {} actions; it is for at most {}", network.actions, *most_actions);
  }
  return std::nullopt;
}

Why why_no_fused_embedding(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  if (network.is_gpt2()) {
    if (network.cells > StepShape::kMostCells)
      return fmt::format("grids have {} cells; it is for at most {}", network.cells, StepShape::kMostCells);
    return why_not_fused(network, device, type, std::nullopt, std::nullopt);
  }
  if (auto why = why_not_ad(network, "it is")) return why;
  return why_not_fused(network, device, type, TokenShape::kMostActions, kWidestEmbedding);
}

Why why_no_fused_loss(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  if (network.actions < 2) return "it is for actions of one choice each, as Discrete ones are";
  if (network.packed)
    return "it has all actions of a row as targets, and of packed rows the last may be none";
  return why_not_fused(network, device, type, LinearCrossEntropyShape::kMostActions, std::nullopt);
}

/// Why no kernels of ours encode the grids, of each group that has one.
Why why_no_fused_encoder(const NetworkShape& network, const DeviceTraits& device, at::ScalarType type) {
  using Shape = SymbolicEncoderShape;
  if (!device.runs_small_kernels()) return "it is for GPUs of compute capability 9.0 and later";
  if (type != at::kBFloat16 && type != at::kHalf) return "it is for mixed_precision: bf16 or fp16";
  for (const SymbolGrid& grid : network.grids) {
    const int64_t digits = static_cast<int64_t>(grid.values.size());
    const int64_t sum = std::accumulate(grid.values.begin(), grid.values.end(), int64_t{0});
    if (digits > Shape::kMostDigits || sum > Shape::kMostSymbols) {
      return fmt::format("cells have {} digits of {} values together; it is for at most {} of {}", digits,
                         sum, Shape::kMostDigits, Shape::kMostSymbols);
    }
    const Shape shape = grid.shape(/*tokens=*/1, ShortType::kBFloat16);
    if (shape.numbers() > Shape::kMostNumbers) {
      return fmt::format("a cell takes {} values; it is for at most {}", shape.numbers(),
                         Shape::kMostNumbers);
    }
    if (shape.cells() > Shape::kMostCells || symbolic_encoder_bytes(shape) > device.shared_bytes_of_a_block) {
      return fmt::format("grids of {} × {} cells of {} values do not fit in shared memory", grid.height,
                         grid.width, shape.numbers());
    }
  }
  return std::nullopt;
}

}  // namespace

MissingKernels MissingKernels::of(const NetworkShape& network, const DeviceTraits& device,
                                  at::ScalarType type) {
  return {.whole_blocks = why_no_whole_blocks(network, device, type),
          .sublayers = why_no_sublayers(network, device, type),
          .own_attention = why_no_own_attention(network, device, type),
          .cudnn_attention = why_no_cudnn_attention(network, device, type),
          .decoding_attention = why_no_decoding_attention(network, device, type),
          .fused_embedding = why_no_fused_embedding(network, device, type),
          .fused_encoder = why_no_fused_encoder(network, device, type),
          .fused_loss = why_no_fused_loss(network, device, type)};
}

MissingKernels MissingKernels::all(const std::string& why) {
  return {why, why, why, why, why, why, why, why};
}

bool streams_keys(const NetworkShape& network, at::ScalarType type) {
  const ShortType of_elements = type == at::kHalf ? ShortType::kHalf : ShortType::kBFloat16;
  return network.block == NetworkShape::Block::kComposed ||
         is_streaming_attention(network.tokens, network.head_size(), of_elements);
}

}  // namespace adtrain::kernels
