// Plans of networks of chosen pieces: which kernels run these, on which devices.

#include <gmock/gmock.h>

#include "kernels/PlannedNetworks.h"

namespace adtrain {
namespace {

using kernels::DeviceTraits;
using kernels::KernelPlan;
using kernels::NetworkShape;
using testing::guide;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kAmpere;
using testing::kCpu;
using testing::kHopper;
using testing::parts_of;
using testing::wide;
using testing::with_block;
using Block = NetworkShape::Block;
using Blocks = KernelPlan::Blocks;

TEST(ChosenPiecesPlan, PackedRowsAreReadByKernelsThatKnowTheirHistories) {
  NetworkShape shape = with_block(Block::kComposed, wide(512, 8, 4096));
  shape.gelu = shape.mlp_biases = shape.packed = true;
  for (const bool alibi : {true, false}) {
    shape.alibi = alibi;
    const KernelPlan plan(shape, kHopper, at::kHalf);
    EXPECT_TRUE(plan.own_attention() && plan.by_sublayers()) << "cuDNN's, which is else faster, cannot";
    EXPECT_EQ(parts_of(plan)["attention"].kernels,
              "our kernels, which stream keys and values of each history of a row");
    for (const auto& [device, type] : {std::pair{kAmpere, at::kBFloat16}, std::pair{kHopper, at::kFloat}}) {
      const KernelPlan plain(shape, device, type);
      EXPECT_FALSE(plain.own_attention() || plain.cudnn_attention() || plain.by_sublayers());
      EXPECT_EQ(parts_of(plain)["attention"].kernels, "libtorch's kernels, by a mask of each row");
      EXPECT_THAT(parts_of(plain)["attention"].why,
                  ::testing::AllOf(HasSubstr("sequence_packing puts several histories into one"),
                                   HasSubstr("ours: ")));
    }
  }
  shape.heads = 16;
  shape.width = 16 * 48;
  EXPECT_THAT(KernelPlan(shape, kHopper, at::kBFloat16).parts().at(2).why, HasSubstr("48 features"));
}

TEST(ChosenPiecesPlan, QuantisedWeightsGoBySublayersAroundAnyAttention) {
  NetworkShape shape = with_block(Block::kComposed, wide(512, 8, 4096));
  shape.alibi = shape.gelu = shape.mlp_biases = shape.quantised = true;
  for (const bool alibi : {true, false}) {
    shape.alibi = alibi;
    const KernelPlan plan(shape, kHopper, at::kBFloat16);
    EXPECT_TRUE(plan.by_sublayers());
    EXPECT_TRUE(plan.decoding_attention());
    EXPECT_FALSE(plan.cudnn_attention()) << "there are no gradients";
    auto parts = parts_of(plan);
    EXPECT_THAT(parts["products"].kernels, HasSubstr("quantised weights"));
    EXPECT_THAT(parts["norms"].kernels, HasSubstr("one kernel"));
    EXPECT_THAT(parts["MLP"].kernels, HasSubstr("one kernel for the activation"));
    EXPECT_EQ(parts["attention"].kernels, "our kernels, which stream keys and values");
    EXPECT_THAT(plan.summary(), HasSubstr("weight-only products, kernels of our own between them"));
  }
  shape.gelu = shape.mlp_biases = false;
  EXPECT_THAT(parts_of(KernelPlan(shape, kHopper, at::kBFloat16))["MLP"].kernels,
              HasSubstr("the activation by libtorch's operators"));
  const KernelPlan in_fp32(shape, kHopper, at::kFloat);
  EXPECT_FALSE(in_fp32.by_sublayers());
  EXPECT_THAT(parts_of(in_fp32)["norms"].why, HasSubstr("mixed_precision"));
}

TEST(ChosenPiecesPlan, OwnOrCudnnsKernelsRunAttentionWhereTheyCan) {
  NetworkShape xland = with_block(Block::kComposed, wide(512, 8, 4096));
  xland.alibi = true;
  const auto why = [](const NetworkShape& shape, const DeviceTraits& device, at::ScalarType type) {
    return parts_of(KernelPlan(shape, device, type)).at("attention").why;
  };
  for (const DeviceTraits& device : {kHopper, kAmpere}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const bool own = device.runs_large_kernels();
      const KernelPlan plan(xland, device, type);
      EXPECT_EQ(plan.own_attention(), own);
      EXPECT_NE(plan.cudnn_attention(), own);
      EXPECT_THAT(why(xland, device, type), IsEmpty());
    }
  }
  EXPECT_THAT(why(xland, kHopper, at::kFloat), HasSubstr("bf16 or fp16"));
  NetworkShape other = xland;
  other.heads = 16, other.width = 16 * 100;
  EXPECT_THAT(why(other, kHopper, at::kHalf), HasSubstr("100 features"));
  other.width = 16 * 256;
  EXPECT_THAT(why(other, kHopper, at::kHalf), HasSubstr("256 features"));
  other = xland;
  other.heads = 12, other.width = 768;
  EXPECT_THAT(why(other, kAmpere, at::kHalf), HasSubstr("12 heads"));
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    EXPECT_TRUE(KernelPlan(other, kHopper, type).own_attention());
  other.alibi = false;
  EXPECT_THAT(parts_of(KernelPlan(other, kHopper, at::kBFloat16)).at("attention").kernels,
              HasSubstr("cuDNN's"));
  other.normed_heads = true;
  EXPECT_TRUE(KernelPlan(other, kHopper, at::kHalf).own_attention());
  EXPECT_TRUE(KernelPlan(other, kAmpere, at::kHalf).cudnn_attention());
  other = xland;
  other.two_streams = true;
  for (const bool alibi : {true, false}) {
    other.alibi = alibi;
    const KernelPlan plan(other, kHopper, at::kHalf);
    EXPECT_TRUE(plan.own_attention() && !plan.reads_masks());
  }
  EXPECT_THAT(why(other, kAmpere, at::kHalf), HasSubstr("token_layout: previous"));
  other = xland;
  other.tokens = 63;
  EXPECT_THAT(why(other, kAmpere, at::kHalf), HasSubstr("63 tokens"));
  EXPECT_TRUE(KernelPlan(other, kHopper, at::kHalf).own_attention());
  const KernelPlan never(xland, kHopper, at::kBFloat16, KernelPlan::Use::kNever);
  EXPECT_FALSE(never.cudnn_attention() || never.own_attention());
}

TEST(ChosenPiecesPlan, WithoutAlibiAndNormsOwnAttentionRunsWhereCudnnsIsSlower) {
  const auto is_own = [](const NetworkShape& shape, at::ScalarType type = at::kBFloat16) {
    const KernelPlan plan(shape, kHopper, type);
    EXPECT_NE(plan.own_attention(), plan.cudnn_attention());
    return plan.own_attention();
  };
  const auto of = [](int64_t heads, int64_t tokens) {
    return with_block(Block::kComposed, wide(512, heads, tokens));
  };
  EXPECT_TRUE(is_own(of(8, 2048)));
  EXPECT_FALSE(is_own(of(8, 2049)));
  EXPECT_TRUE(is_own(of(8, 1024), at::kHalf));
  EXPECT_FALSE(is_own(of(8, 1025), at::kHalf));
  EXPECT_TRUE(is_own(of(8, 63))) << "fewer than cuDNN's is for";
  EXPECT_TRUE(is_own(of(16, 4096))) << "heads of 32";
  EXPECT_TRUE(is_own(of(32, 4096))) << "heads of 16";
  EXPECT_FALSE(is_own(of(64, 4096))) << "heads of 8";
  NetworkShape normed = of(32, 4096);
  normed.normed_heads = true;
  EXPECT_FALSE(is_own(normed)) << "heads of 16, whose norms have no kernel";
  EXPECT_FALSE(is_own(of(4, 512))) << "heads of 128";
  NetworkShape dropped = of(8, 4096);
  dropped.drops_attention = true;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) EXPECT_TRUE(is_own(dropped, type));
  EXPECT_TRUE(KernelPlan(of(8, 1024), kAmpere, at::kBFloat16).cudnn_attention());
}

TEST(ChosenPiecesPlan, BlocksGoBySublayersAroundOwnOrCudnnsAttention) {
  NetworkShape xland = with_block(Block::kComposed, wide(512, 8, 4096));
  xland.alibi = xland.gelu = xland.mlp_biases = true;
  for (const DeviceTraits& device : {kHopper, kAmpere}) {
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const KernelPlan plan(xland, device, type);
      EXPECT_TRUE(plan.by_sublayers());
      EXPECT_FALSE(plan.fused_embedding());
      EXPECT_EQ(plan.fused_loss(), device.compute_capability >= 90);
      const auto parts = parts_of(plan);
      EXPECT_THAT(parts.at("norms").kernels, HasSubstr("one kernel"));
      EXPECT_THAT(parts.at("products").kernels, HasSubstr("cuBLASLt"));
      EXPECT_THAT(parts.at("attention").kernels, HasSubstr(plan.own_attention() ? "our kernels" : "cuDNN"));
      EXPECT_EQ(plan.gelu_in_epilogues(), device.compute_capability == kHopper.compute_capability);
      EXPECT_THAT(
          parts.at("MLP").kernels,
          HasSubstr(plan.gelu_in_epilogues() ? "GELU in their epilogue" : "one kernel for the activation"));
      EXPECT_THAT(plan.summary(),
                  HasSubstr(plan.own_attention() ? "attention among them" : "cuDNN's attention"));
    }
  }
  const auto why = [](const NetworkShape& shape, at::ScalarType type = at::kBFloat16) {
    const KernelPlan plan(shape, kHopper, type);
    EXPECT_EQ(plan.blocks(), Blocks::kLibrary);
    return parts_of(plan).at("blocks").why;
  };
  EXPECT_THAT(why(xland, at::kFloat), HasSubstr("mixed_precision"));
  NetworkShape other = xland;
  other.alibi = false, other.tokens = 63, other.heads = 4;
  EXPECT_THAT(why(other, at::kHalf), HasSubstr("63 tokens"));
  other = xland;
  other.mlp_biases = false;
  EXPECT_THAT(why(other), HasSubstr("GELU has only attention's biases"));
  other.gelu = false;
  EXPECT_TRUE(KernelPlan(other, kHopper, at::kHalf).by_sublayers());
  other.mlp_biases = true;
  EXPECT_THAT(why(other), HasSubstr("SwiGLU has all biases"));
  other.attention_biases = other.mlp_biases = false;
  EXPECT_THAT(why(other), HasSubstr("SwiGLU has no biases"));
  other = xland;
  other.inner_width = 2044;
  EXPECT_THAT(why(other), HasSubstr("2044"));
  EXPECT_FALSE(KernelPlan(xland, kHopper, at::kHalf, KernelPlan::Use::kNever).by_sublayers());
}

TEST(ChosenPiecesPlan, TheLossIsFusedOfOneChoiceInEachToken) {
  NetworkShape xland = with_block(Block::kComposed, wide(512, 8, 4096));
  const auto why = [&] { return parts_of(KernelPlan(xland, kHopper, at::kBFloat16)).at("loss").why; };
  EXPECT_THAT(why(), IsEmpty());
  xland.packed = true;
  EXPECT_THAT(why(), HasSubstr("packed"));
  xland.packed = false;
  xland.actions = 9;
  EXPECT_THAT(why(), HasSubstr("there are 9 actions"));
  xland.actions = 0;
  EXPECT_THAT(why(), HasSubstr("one choice each"));
}

TEST(ChosenPiecesPlan, BlocksRunByPlainOperatorsElsewhere) {
  NetworkShape composed = guide();
  composed.block = NetworkShape::Block::kComposed;
  composed.heads *= 2;  // those of 8 have none of these kernels
  composed.two_streams = true;
  for (const DeviceTraits& device : {kHopper, kCpu}) {
    const KernelPlan plan(composed, device, at::kBFloat16);
    EXPECT_EQ(plan.blocks(), Blocks::kLibrary);
    EXPECT_FALSE(plan.own_attention() || plan.fused_embedding());
    EXPECT_EQ(plan.fused_loss(), device.is_gpu);
    const auto parts = parts_of(plan);
    EXPECT_THAT(parts.at("blocks").kernels, HasSubstr("plain operators"));
    EXPECT_THAT(parts.at("embedding").why, HasSubstr("not for chosen pieces"));
    EXPECT_FALSE(plan.cudnn_attention());
    EXPECT_THAT(parts.at("blocks").why, device.is_gpu ? HasSubstr("token_layout: previous") : HasSubstr(""));
  }
}

TEST(ChosenPiecesPlan, GridsOfSymbolsHaveAnEncoderOfOurOwnWhereTheyFit) {
  NetworkShape xland = with_block(Block::kComposed, wide(512, 8, 4096));
  EXPECT_EQ(parts_of(KernelPlan(xland, kHopper, at::kHalf)).count("observation encoder"), 0U);
  xland.grids = {{5, 5, {13, 12}, true, 64}};
  const auto part_of = [](const NetworkShape& shape, const DeviceTraits& device, at::ScalarType type) {
    return parts_of(KernelPlan(shape, device, type)).at("observation encoder");
  };
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(KernelPlan(xland, kHopper, type).fused_encoder());
    EXPECT_THAT(part_of(xland, kHopper, type).kernels, HasSubstr("ours"));
    EXPECT_THAT(part_of(xland, kHopper, type).why, IsEmpty());
  }
  EXPECT_THAT(part_of(xland, kHopper, at::kFloat).why, HasSubstr("bf16 or fp16"));
  EXPECT_THAT(part_of(xland, kAmpere, at::kHalf).why, HasSubstr("9.0"));
  EXPECT_FALSE(KernelPlan(xland, kCpu, at::kBFloat16).fused_encoder());
  EXPECT_FALSE(KernelPlan(xland, kHopper, at::kHalf, KernelPlan::Use::kNever).fused_encoder());

  const auto why_not = [&](kernels::SymbolGrid grid) {
    NetworkShape two_groups = xland;
    two_groups.grids.push_back(std::move(grid));
    return part_of(two_groups, kHopper, at::kHalf).why;
  };
  EXPECT_THAT(why_not({9, 9, {13, 12}, true, 64}), IsEmpty());
  EXPECT_THAT(why_not({7, 7, {11, 6, 3}, false, 511}), IsEmpty());
  EXPECT_THAT(why_not({5, 5, {20, 13}, false, 64}), HasSubstr("2 digits of 33 values together"));
  EXPECT_THAT(why_not({5, 5, {2, 2, 2, 2, 2}, false, 64}), HasSubstr("5 digits"));
  EXPECT_THAT(why_not({5, 5, {7, 7, 7}, false, 64}), HasSubstr("343 values"));
  EXPECT_THAT(why_not({10, 10, {13, 12}, true, 64}), HasSubstr("10 × 10 cells of 156 values do not fit"));
  EXPECT_THAT(why_not({4, 40, {2}, true, 64}), HasSubstr("4 × 40 cells"));
}

}  // namespace
}  // namespace adtrain
