// All blocks of a decoding step in one kernel, beside the kernels of each product and plain operators in
// fp32. The kernel is not emulated.

#include "kernels/block/stack/StackDecoder.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "base/Gpu.h"
#include "kernels/QuantisedCase.h"
#include "kernels/norm/NormEpsilon.h"
#include "kernels/quantised/QuantisedProduct.h"
#include "kernels/quantised/WeightProduct.h"

namespace adtrain {
namespace {

using kernels::DistancePenalty;
using kernels::NormWeights;
using kernels::StackableBlock;
using kernels::StackDecoder;
using testing::Quantised;

constexpr int64_t kWidth = 2048, kHeads = 32, kHeadSize = 64, kInner = 4 * kWidth;

struct StackCase {
  std::string name;
  at::ScalarType type;
  Quantised kind;
  bool layer_norm, biases, head_norms;
  DistancePenalty penalty;
  int64_t rows, window, steps;
};

StackableBlock random_block(const StackCase& network, at::Device device) {
  constexpr double kScale = 0.3;  // of weights, so that no head reads one token alone
  constexpr std::array<std::array<int64_t, 2>, 4> kSizes = {
      {{3 * kWidth, kWidth}, {kWidth, kWidth}, {kInner, kWidth}, {kWidth, kInner}}};
  const auto numbers = at::device(device).dtype(network.type);
  StackableBlock block;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    block.matrices[i] = testing::random_matrix(network.kind, kSizes[i][0], kSizes[i][1], device);
    block.matrices[i].absmax.mul_(kScale);
    if (network.biases) block.biases[i] = at::randn({kSizes[i][0]}, numbers).mul_(0.1);
  }
  for (size_t i = 0; i < 2; ++i) {
    block.norms[i].weight = at::rand({kWidth}, numbers).add_(0.5);
    if (!network.layer_norm) continue;
    block.norms[i].bias = at::randn({kWidth}, numbers).mul_(0.1);
    block.norm_products[i] = device.is_cuda() ? kernels::norm_products(at::zeros({1, kWidth}, numbers),
                                                                       block.matrices[2 * i], block.norms[i])
                                              : at::zeros({2, kSizes[2 * i][0]});
  }
  const at::Tensor key = at::empty({network.rows, kHeads, 1, kHeadSize}, numbers);
  block.ring = kernels::KeyValueRing::like(key, network.window);
  if (!network.head_norms) return block;
  for (NormWeights* norm : {&block.head_norms.queries, &block.head_norms.keys}) {
    norm->weight = at::rand({kHeadSize}, numbers).add_(0.5);
    if (network.layer_norm) norm->bias = at::randn({kHeadSize}, numbers).mul_(0.1);
  }
  return block;
}

/// With one map for all matrices, as quantised networks have.
std::vector<StackableBlock> random_blocks(const StackCase& network, at::Device device) {
  std::vector<StackableBlock> blocks = {random_block(network, device), random_block(network, device)};
  for (StackableBlock& block : blocks)
    for (QuantisedMatrix& matrix : block.matrices)
      matrix.code_map = blocks[0].matrices[0].code_map;  // none of 8 bits
  return blocks;
}

at::Tensor heads_of(const at::Tensor& projected) {
  return projected.view({projected.size(0), 1, 3, kHeads, kHeadSize}).permute({2, 0, 3, 1, 4});
}

/// The same step by one kernel for each product.
at::Tensor by_products(const at::Tensor& x, const std::vector<StackableBlock>& blocks,
                       const at::Tensor& tokens, DistancePenalty penalty) {
  at::Tensor rows = x.squeeze(1);
  for (const StackableBlock& block : blocks) {
    const auto normed = [&](size_t i) -> ProductOptions {
      return {.norm = block.norms[i], .norm_products = block.norm_products[i]};
    };
    const at::Tensor projected = quantised_linear(rows, block.matrices[0], block.biases[0], normed(0));
    const at::Tensor heads = heads_of(projected);
    const at::Tensor read =
        kernels::decode_attention(heads[0], heads[1], heads[2], block.ring, tokens, penalty, block.head_norms)
            .squeeze(1);
    rows = quantised_linear(read, block.matrices[1], block.biases[1], {.sum = rows});
    ProductOptions up = normed(1);
    up.gelu = true;
    const at::Tensor inner = quantised_linear(rows, block.matrices[2], block.biases[2], up);
    rows = quantised_linear(inner, block.matrices[3], block.biases[3], {.sum = rows});
  }
  return rows.unsqueeze(1);
}

/// By plain operators in fp32, with all keys and values that are kept.
class PlainStack {
 public:
  PlainStack(const std::vector<StackableBlock>& blocks, const StackCase& network) : network_(network) {
    for (const StackableBlock& block : blocks) {
      Plain plain;
      for (size_t i = 0; i < 4; ++i) {
        plain.weights[i] = testing::plainly_dequantised(block.matrices[i], at::kFloat);
        if (block.biases[i].defined()) plain.biases[i] = block.biases[i].to(at::kFloat);
      }
      plain.norms = block.norms;
      plain.head_norms = block.head_norms;
      blocks_.push_back(plain);
    }
  }

  at::Tensor step(const at::Tensor& x) {
    at::Tensor rows = x.to(at::kFloat);
    for (Plain& block : blocks_) {
      const at::Tensor heads = heads_of(block.product(0, normed(rows, block.norms[0])));
      const auto of_head = [&](const at::Tensor& head, const NormWeights& norm) {
        return norm.weight.defined() ? normed(head, norm) : head;
      };
      const at::Tensor query = of_head(heads[0], block.head_norms.queries) / std::sqrt(kHeadSize);
      rows = rows + block.product(1, read(block, query, of_head(heads[1], block.head_norms.keys), heads[2]));
      rows = rows + block.product(3, at::gelu(block.product(2, normed(rows, block.norms[1]))));
    }
    return rows;
  }

 private:
  struct Plain {
    std::array<at::Tensor, 4> weights, biases;
    std::array<NormWeights, 2> norms;
    kernels::HeadNorms head_norms;
    std::vector<at::Tensor> keys, values;

    at::Tensor product(size_t i, const at::Tensor& x) const { return at::linear(x, weights[i], biases[i]); }
  };

  at::Tensor normed(const at::Tensor& x, const NormWeights& norm) const {
    const at::Tensor weight = norm.weight.to(at::kFloat);
    if (network_.layer_norm)
      return at::layer_norm(x, {x.size(-1)}, weight, norm.bias.to(at::kFloat), kNormEpsilon);
    return x * at::rsqrt(x.square().mean(-1, true) + kNormEpsilon) * weight;
  }
  at::Tensor read(Plain& block, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value) const {
    block.keys.push_back(key);
    block.values.push_back(value);
    if (std::ssize(block.keys) > network_.window) {
      block.keys.erase(block.keys.begin());
      block.values.erase(block.values.begin());
    }
    at::Tensor scores = at::matmul(query, at::cat(block.keys, 2).transpose(2, 3));
    if (network_.penalty == DistancePenalty::kAlibi) {
      const at::Tensor slopes = at::exp2(at::arange(1, kHeads + 1, scores.options()) * (-8.0 / kHeads));
      const at::Tensor ages = at::arange(scores.size(3) - 1, -1, -1, scores.options());
      scores = scores - slopes.view({1, kHeads, 1, 1}) * ages;
    }
    return at::matmul(scores.softmax(-1), at::cat(block.values, 2)).transpose(1, 2).flatten(2);
  }

  const StackCase& network_;
  std::vector<Plain> blocks_;
};

double error_of(const at::Tensor& found, const at::Tensor& expected) {
  return ((found.to(at::kFloat) - expected).norm() / expected.norm()).item<double>();
}

std::vector<StackCase> cases() {
  constexpr auto kAlibi = DistancePenalty::kAlibi, kNone = DistancePenalty::kNone;
  return {{"one_row", at::kBFloat16, Quantised::kNf4, true, true, false, kAlibi, 1, 6, 9},
          {"eight_rows", at::kBFloat16, Quantised::kNf4, true, true, true, kAlibi, 8, 6, 9},
          {"rms_norm", at::kBFloat16, Quantised::kFp4, false, false, false, kNone, 3, 6, 9},
          {"fp16", at::kHalf, Quantised::kNf4, true, true, false, kAlibi, 5, 6, 9},
          {"fp16_rms_norm", at::kHalf, Quantised::kFp4, false, false, true, kNone, 4, 6, 9},
          {"many_keys_of_one", at::kHalf, Quantised::kNf4, true, false, false, kAlibi, 1, 290, 320},
          {"many_keys_without_penalty", at::kBFloat16, Quantised::kNf4, true, true, true, kNone, 1, 270, 280},
          {"many_keys", at::kBFloat16, Quantised::kNf4, true, false, true, kAlibi, 2, 300, 330},
          {"many_keys_of_eight", at::kHalf, Quantised::kNf4, true, true, false, kAlibi, 8, 200, 220},
          {"int8", at::kBFloat16, Quantised::kInt8, true, true, false, kAlibi, 1, 6, 9},
          {"int8_of_eight", at::kBFloat16, Quantised::kInt8, true, true, true, kAlibi, 8, 6, 9},
          {"int8_fp16", at::kHalf, Quantised::kInt8, true, false, true, kNone, 5, 6, 9},
          {"int8_rms_norm", at::kHalf, Quantised::kInt8, false, true, false, kAlibi, 3, 6, 9},
          {"int8_many_keys", at::kBFloat16, Quantised::kInt8, true, true, true, kAlibi, 2, 300, 330}};
}

class StackDecoders : public ::testing::TestWithParam<StackCase> {};
INSTANTIATE_TEST_SUITE_P(Networks, StackDecoders, ::testing::ValuesIn(cases()),
                         [](const auto& network) { return network.param.name; });

TEST_P(StackDecoders, AreTheBlocksOneByOne) {
  if (visible_gpu_count() == 0) GTEST_SKIP() << "no GPU here";
  const c10::InferenceMode no_gradients;
  const StackCase& network = GetParam();
  const std::vector<StackableBlock> one_by_one = random_blocks(network, at::kCUDA);
  std::vector<StackableBlock> stacked = one_by_one;
  const auto numbers = at::device(at::kCUDA).dtype(network.type);
  for (StackableBlock& block : stacked) {
    const at::Tensor key = block.ring.keys.narrow(2, 0, 1);
    block.ring = kernels::KeyValueRing::like(key, network.window);
  }
  PlainStack plain(one_by_one, network);
  const at::Tensor tokens = at::zeros({1}, numbers.dtype(at::kLong));
  std::optional<StackDecoder> decoder;
  std::vector<at::Tensor> exact, of_products, found;
  for (int64_t step = 0; step < network.steps; ++step) {
    const at::Tensor x = at::randn({network.rows, 1, kWidth}, numbers).add_(0.5);
    tokens.add_(1);
    const at::Tensor expected = plain.step(x), of_each = by_products(x, one_by_one, tokens, network.penalty);
    if (!decoder) {  // the first token, which a decoder needs
      by_products(x, stacked, tokens, network.penalty);
      decoder = StackDecoder::of(stacked, network.rows, network.type, network.penalty);
      ASSERT_TRUE(decoder) << "this GPU has no such kernel";
      continue;
    }
    exact.push_back(expected);
    of_products.push_back(of_each);
    if (step % 2 == 0) decoder->prepare();
    found.push_back((*decoder)(x, tokens));
    if (step == 1 || step + 1 == network.steps) {
      EXPECT_TRUE(at::equal(found.back(), (*decoder)(x, tokens))) << "two equal steps differ";
    }
  }
  const at::Tensor expected = at::stack(exact);
  const double error = error_of(at::stack(found), expected),
               of_each = error_of(at::stack(of_products), expected);
  EXPECT_LT(of_each, network.type == at::kHalf ? 1e-2 : 5e-2);
  EXPECT_LT(error, 1.5 * of_each);
  for (size_t i = 0; i < stacked.size(); ++i) {
    const kernels::KeyValueRing &ring = stacked[i].ring, &other = one_by_one[i].ring;
    EXPECT_LT(error_of(ring.keys, other.keys.to(at::kFloat)), 5e-2);
    EXPECT_LT(error_of(ring.values, other.values.to(at::kFloat)), 5e-2);
    if (network.penalty == DistancePenalty::kAlibi) {
      EXPECT_LT(error_of(ring.key_norms, other.key_norms), 5e-2);
    }
  }
}

TEST(StackDecoder, IsForCertainBlocksAlone) {
  const c10::InferenceMode no_gradients;
  const StackCase network = cases().front();
  const std::vector<StackableBlock> blocks = random_blocks(network, at::kCPU);
  EXPECT_TRUE(StackDecoder::is_for(blocks, network.rows, network.type));
  StackCase in_8_bits = network;
  in_8_bits.kind = Quantised::kInt8;
  EXPECT_TRUE(StackDecoder::is_for(random_blocks(in_8_bits, at::kCPU), network.rows, network.type));
  EXPECT_FALSE(StackDecoder::is_for({}, network.rows, network.type));
  EXPECT_FALSE(StackDecoder::is_for(blocks, 9, network.type));
  EXPECT_FALSE(StackDecoder::is_for(blocks, network.rows, at::kHalf)) << "rings of another type";
  EXPECT_FALSE(StackDecoder::is_for(blocks, network.rows, at::kFloat));
  EXPECT_FALSE(StackDecoder::is_for(std::vector(33, blocks.front()), network.rows, network.type));
  // With the second block changed.
  const auto holds = [&](auto change) {
    std::vector<StackableBlock> changed = blocks;
    change(changed[1]);
    return StackDecoder::is_for(changed, network.rows, network.type);
  };
  const auto with_matrix = [&](Quantised kind, int64_t block_size) {
    return holds([&](StackableBlock& block) {
      block.matrices[2] = testing::random_matrix(kind, kInner, kWidth, at::kCPU, block_size);
    });
  };
  EXPECT_TRUE(with_matrix(Quantised::kNf4, 64));
  EXPECT_FALSE(with_matrix(Quantised::kInt8, 64)) << "weights of both forms";
  EXPECT_FALSE(with_matrix(Quantised::kNestedNf4, 64));
  EXPECT_FALSE(with_matrix(Quantised::kNf4, 128));
  EXPECT_FALSE(with_matrix(Quantised::kFp4, 64)) << "another map";
  EXPECT_FALSE(holds([](StackableBlock& block) { std::swap(block.matrices[2], block.matrices[3]); }));
  EXPECT_FALSE(holds([](StackableBlock& block) { block.norms[1].bias = at::Tensor(); }))
      << "norms of both kinds";
  EXPECT_FALSE(holds([](StackableBlock& block) { block.norm_products[1] = at::Tensor(); }))
      << "what is not known";
  EXPECT_FALSE(holds([](StackableBlock& block) { block.head_norms.queries = block.norms[0]; }));
  EXPECT_FALSE(holds([](StackableBlock& block) { block.ring.keys = block.ring.keys.narrow(2, 0, 3); }));
}

}  // namespace
}  // namespace adtrain
