#include "kernels/plan/KernelPlan.h"

#include <map>

#include <gmock/gmock.h>

namespace adtrain {
namespace {

using kernels::DeviceTraits;
using kernels::KernelPlan;
using kernels::NetworkShape;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Block = NetworkShape::Block;
using Blocks = KernelPlan::Blocks;

constexpr DeviceTraits kHopper = DeviceTraits::hopper();
constexpr DeviceTraits kAmpere = {true, 80, 163 * 1024};
constexpr DeviceTraits kCpu = {};

/// The guide's: post-norm, width 64, 4 heads, 240 tokens.
NetworkShape guide() {
  return {
      .block = Block::kPostNorm, .width = 64, .heads = 4, .inner_width = 256, .tokens = 240, .actions = 5};
}
NetworkShape wide(int64_t width, int64_t heads, int64_t tokens) {
  NetworkShape shape = guide();
  shape.width = width;
  shape.heads = heads;
  shape.inner_width = 4 * width;
  shape.tokens = tokens;
  return shape;
}
NetworkShape with_block(Block block, NetworkShape shape = guide()) {
  shape.block = block;
  return shape;
}

std::map<std::string, KernelPlan::Part> parts_of(const KernelPlan& plan) {
  std::map<std::string, KernelPlan::Part> parts;
  for (const KernelPlan::Part& part : plan.parts()) parts.emplace(part.name, part);
  return parts;
}

TEST(KernelPlan, SmallBlocksAreWholeOnHopper) {
  for (const Block block : {Block::kPostNorm, Block::kPreNorm}) {
    const KernelPlan plan(with_block(block), kHopper, at::kBFloat16);
    EXPECT_EQ(plan.blocks(), Blocks::kWhole);
    EXPECT_TRUE(plan.fused_embedding() && plan.fused_loss());
    EXPECT_FALSE(plan.reads_masks());
    for (const auto& [name, part] : parts_of(plan)) EXPECT_THAT(part.why, IsEmpty()) << name;
  }
}

TEST(KernelPlan, TheHeadOfDynamicsRunsPlainOperatorsBesideWholeBlocks) {
  NetworkShape shape = guide();
  EXPECT_EQ(parts_of(KernelPlan(shape, kHopper, at::kBFloat16)).count("dynamics"), 0U);
  shape.dynamics = true;
  const KernelPlan plan(shape, kHopper, at::kBFloat16);
  EXPECT_TRUE(plan.whole_blocks() && plan.fused_loss());
  EXPECT_THAT(parts_of(plan).at("dynamics").kernels, HasSubstr("libtorch's operators"));
}

TEST(KernelPlan, PackedRowsAreReadByKernelsThatKnowTheirHistories) {
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

TEST(KernelPlan, RolloutsReadKeptKeysByOurKernel) {
  const NetworkShape chosen = with_block(Block::kComposed, wide(512, 8, 4096));
  for (const DeviceTraits& device : {kHopper, kAmpere}) {
    EXPECT_TRUE(KernelPlan(chosen, device, at::kBFloat16).decoding_attention());
    EXPECT_TRUE(KernelPlan(chosen, device, at::kHalf).decoding_attention());
  }
  const auto why = [](const NetworkShape& shape, const DeviceTraits& device, at::ScalarType type) {
    return KernelPlan(shape, device, type).why_no_decoding_attention().value_or("");
  };
  EXPECT_THAT(why(chosen, kHopper, at::kFloat), HasSubstr("bf16 or fp16"));
  EXPECT_THAT(why(chosen, kCpu, at::kBFloat16), HasSubstr("GPUs"));
  EXPECT_THAT(why(with_block(Block::kComposed, wide(384, 8, 4096)), kHopper, at::kBFloat16),
              HasSubstr("heads have 48 features"));
  for (const Block block : {Block::kPreNorm, Block::kPostNorm, Block::kGpt2})
    EXPECT_THAT(why(with_block(block, wide(512, 8, 4096)), kHopper, at::kBFloat16), IsEmpty());
  NetworkShape compressed = wide(512, 8, 4096);
  compressed.padded = true;
  for (const NetworkShape& other : {compressed, with_block(Block::kOther, wide(512, 8, 4096))})
    EXPECT_THAT(why(other, kHopper, at::kBFloat16), HasSubstr("keeps no keys"));
  EXPECT_THAT(KernelPlan(chosen, kHopper, at::kBFloat16, KernelPlan::Use::kNever).why_no_decoding_attention(),
              ::testing::Optional(HasSubstr("fused_kernels is off")));
}

TEST(KernelPlan, BlocksOfQuantisedWeightsRunByPlainOperators) {
  for (const Block block : {Block::kPostNorm, Block::kPreNorm, Block::kGpt2}) {
    NetworkShape shape = with_block(block, wide(64, 2, 240));
    shape.quantised = true;
    const KernelPlan plan(shape, kHopper, at::kBFloat16);
    EXPECT_EQ(plan.blocks(), Blocks::kLibrary);
    EXPECT_TRUE(plan.reads_masks());
    EXPECT_TRUE(plan.decoding_attention());
    auto parts = parts_of(plan);
    EXPECT_THAT(parts["products"].kernels, HasSubstr("quantised weights"));
    EXPECT_THAT(parts["norms"].why, HasSubstr("these are quantised"));
    EXPECT_THAT(parts["MLP"].why, HasSubstr("these are quantised"));
  }
}

TEST(KernelPlan, ChosenPiecesOfQuantisedWeightsGoBySublayersAroundAnyAttention) {
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

TEST(KernelPlan, LibtorchsAttentionIsWhatNoOtherTakes) {
  const auto library = [](const NetworkShape& shape, const DeviceTraits& device, at::ScalarType type) {
    return KernelPlan(shape, device, type).library_attention();
  };
  NetworkShape chosen = with_block(Block::kComposed, wide(512, 8, 4096));
  EXPECT_FALSE(library(chosen, kHopper, at::kBFloat16)) << "cuDNN's";
  chosen.alibi = true;
  EXPECT_FALSE(library(chosen, kHopper, at::kBFloat16)) << "our own";
  EXPECT_TRUE(library(chosen, kHopper, at::kFloat));
  EXPECT_FALSE(library(guide(), kHopper, at::kBFloat16)) << "whole blocks";
  EXPECT_FALSE(library(wide(128, 8, 240), kHopper, at::kBFloat16)) << "by sublayers";
  EXPECT_TRUE(library(wide(128, 8, 240), kAmpere, at::kBFloat16));
  EXPECT_TRUE(library(guide(), kHopper, at::kFloat));
  EXPECT_FALSE(library(guide(), kCpu, at::kFloat));
}

TEST(KernelPlan, WideBlocksGoBySublayersWithOwnAttention) {
  const KernelPlan resident(wide(128, 8, 240), kHopper, at::kBFloat16);
  EXPECT_EQ(resident.blocks(), Blocks::kSublayers);
  EXPECT_TRUE(resident.own_attention());
  EXPECT_FALSE(resident.reads_masks());
  EXPECT_THAT(parts_of(resident).at("attention").kernels, HasSubstr("resident"));
  EXPECT_THAT(parts_of(resident).at("attention").why, HasSubstr("width 128"));

  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const KernelPlan streaming(wide(768, 12, 1024), kHopper, type);
    EXPECT_EQ(streaming.blocks(), Blocks::kSublayers);
    EXPECT_TRUE(streaming.own_attention());
    EXPECT_THAT(parts_of(streaming).at("attention").kernels, HasSubstr("stream"));
  }
  const KernelPlan short_one(wide(128, 8, 240), kHopper, at::kBFloat16),
      half(wide(128, 8, 240), kHopper, at::kHalf), eights(wide(128, 16, 240), kHopper, at::kHalf);
  EXPECT_TRUE(short_one.own_attention() && !short_one.streams_keys());
  EXPECT_TRUE(half.own_attention() && half.streams_keys());
  EXPECT_FALSE(eights.own_attention()) << "resident ones are bf16";
}

TEST(KernelPlan, StreamingAttentionIsForOneStreamOrTwoAndForPadding) {
  NetworkShape regions = wide(768, 12, 1024);
  regions.padded = true;
  for (const bool two_streams : {false, true}) {
    regions.two_streams = two_streams;
    const KernelPlan padded(regions, kHopper, at::kBFloat16);
    EXPECT_EQ(padded.blocks(), Blocks::kSublayers);
    EXPECT_TRUE(padded.own_attention());
    EXPECT_FALSE(padded.reads_masks());
  }

  for (const Block block : {Block::kPostNorm, Block::kPreNorm}) {
    NetworkShape whole = with_block(block, wide(768, 12, 1024));
    for (const bool two_streams : {false, true}) {
      whole.two_streams = two_streams;
      const KernelPlan plan(whole, kHopper, at::kBFloat16);
      EXPECT_TRUE(plan.own_attention() && !plan.reads_masks());
    }
  }
}

TEST(KernelPlan, ProductsOfWarpgroupsAreForHopperAlone) {
  constexpr DeviceTraits kBlackwell = {true, 100, 227 * 1024};
  const KernelPlan streaming(wide(768, 12, 1024), kBlackwell, at::kBFloat16);
  EXPECT_FALSE(streaming.own_attention());
  EXPECT_THAT(parts_of(streaming).at("attention").why, HasSubstr("9.0 alone"));
  for (const NetworkShape& network : {guide(), with_block(Block::kPreNorm)}) {
    const KernelPlan blocks(network, kBlackwell, at::kBFloat16);
    EXPECT_EQ(blocks.blocks(), Blocks::kSublayers);
    EXPECT_THAT(parts_of(blocks).at("MLP").why, HasSubstr("9.0 alone"));
  }
  NetworkShape xland = with_block(Block::kComposed, wide(512, 8, 4096));
  xland.alibi = true;
  EXPECT_TRUE(KernelPlan(xland, kBlackwell, at::kBFloat16).cudnn_attention());
}

TEST(KernelPlan, Fp16AndOlderGpusHaveSublayers) {
  const KernelPlan fp16(guide(), kHopper, at::kHalf), older(guide(), kAmpere, at::kBFloat16);
  EXPECT_TRUE(fp16.own_attention() && fp16.streams_keys());
  EXPECT_FALSE(older.own_attention());
  for (const KernelPlan& plan : {fp16, older}) {
    EXPECT_EQ(plan.blocks(), Blocks::kSublayers);
    EXPECT_NE(plan.own_attention(), plan.reads_masks());
    for (const char* part : {"norms", "products", "attention", "MLP"})
      EXPECT_THAT(parts_of(plan).at(part).why, Not(IsEmpty())) << part;
  }
  EXPECT_TRUE(fp16.fused_embedding() && fp16.fused_loss());
  EXPECT_FALSE(older.fused_embedding() || older.fused_loss());
  for (const char* part : {"embedding", "loss"})
    EXPECT_THAT(parts_of(older).at(part).why, HasSubstr("9.0")) << part;
}

TEST(KernelPlan, LibtorchRunsFp32AndWhatIsSwitchedOff) {
  const KernelPlan fp32(guide(), kHopper, at::kFloat),
      off(guide(), kHopper, at::kBFloat16, KernelPlan::Use::kNever);
  for (const KernelPlan& plan : {fp32, off}) {
    EXPECT_EQ(plan.blocks(), Blocks::kLibrary);
    EXPECT_TRUE(plan.reads_masks());
    EXPECT_FALSE(plan.fused_embedding() || plan.fused_loss());
  }
  EXPECT_THAT(*fp32.why_no_whole_blocks(), HasSubstr("bf16"));
  EXPECT_THAT(*off.why_no_whole_blocks(), HasSubstr("fused_kernels is off"));
}

TEST(KernelPlan, BlocksOfGpt2GoBySublayersAroundOwnAttention) {
  for (const auto& [width, heads, tokens] :
       std::vector<std::array<int64_t, 3>>{{64, 4, 718}, {64, 4, 238}, {768, 12, 1024}}) {
    const KernelPlan plan(with_block(Block::kGpt2, wide(width, heads, tokens)), kHopper, at::kBFloat16);
    EXPECT_TRUE(plan.by_sublayers() && plan.fused_embedding() && plan.fused_loss() &&
                plan.gelu_in_epilogues());
    EXPECT_THAT(*plan.why_no_whole_blocks(), HasSubstr("model AD"));
    EXPECT_TRUE(plan.own_attention()) << width << " wide, " << tokens << " tokens";
    EXPECT_FALSE(plan.reads_masks() || plan.library_attention());
  }
  NetworkShape of_a_large_grid = with_block(Block::kGpt2, wide(64, 4, 718));
  of_a_large_grid.cells = 1600;
  EXPECT_THAT(parts_of(KernelPlan(of_a_large_grid, kHopper, at::kBFloat16)).at("embedding").why,
              HasSubstr("1600 cells"));
  const NetworkShape large = with_block(Block::kGpt2, wide(768, 12, 1024));
  EXPECT_TRUE(KernelPlan(large, kHopper, at::kHalf).own_attention());
  EXPECT_EQ(KernelPlan(large, kHopper, at::kFloat).blocks(), Blocks::kLibrary);
}

TEST(KernelPlan, AnotherNetworkIsLibtorchs) {
  const KernelPlan plan(with_block(Block::kOther), kHopper, at::kBFloat16);
  EXPECT_EQ(plan.blocks(), Blocks::kLibrary);
  EXPECT_FALSE(plan.fused_embedding() || plan.fused_loss() || plan.own_attention());
  EXPECT_EQ(parts_of(plan).count("attention"), 0U);
  EXPECT_EQ(parts_of(plan).count("network"), 1U);
}

TEST(KernelPlan, ShapesBeyondTheKernelsSayWhichNumberIsTooLarge) {
  const auto why = [](const NetworkShape& shape) {
    return KernelPlan(shape, kHopper, at::kBFloat16).why_no_whole_blocks().value_or("");
  };
  EXPECT_THAT(why(wide(96, 3, 240)), HasSubstr("width 96"));
  EXPECT_THAT(why(wide(64, 4, 257)), HasSubstr("257 tokens"));
  NetworkShape slim = guide();
  slim.inner_width = 128;
  EXPECT_THAT(why(slim), HasSubstr("128 wide"));
  NetworkShape odd = wide(100, 5, 240);
  EXPECT_EQ(KernelPlan(odd, kHopper, at::kBFloat16).blocks(), Blocks::kLibrary);
  EXPECT_EQ(KernelPlan(wide(4104, 27, 240), kHopper, at::kBFloat16).blocks(), Blocks::kLibrary);
  NetworkShape many = guide();
  many.actions = 9;
  EXPECT_FALSE(KernelPlan(many, kHopper, at::kBFloat16).fused_loss());
  const KernelPlan widest(wide(4096, 64, 1024), kHopper, at::kBFloat16);
  EXPECT_TRUE(widest.fused_loss());
  EXPECT_FALSE(widest.fused_embedding());
}

TEST(KernelPlan, OwnOrCudnnsKernelsRunAttentionOfChosenPiecesWhereTheyCan) {
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

TEST(KernelPlan, WithoutAlibiAndNormsOwnAttentionRunsWhereCudnnsIsSlower) {
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

TEST(KernelPlan, BlocksOfChosenPiecesGoBySublayersAroundOwnOrCudnnsAttention) {
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

TEST(KernelPlan, DropoutOfTheHiddenLayerIsInEpiloguesOfWholeTiles) {
  const auto in_epilogues = [](int64_t width, bool drops) {
    NetworkShape shape = wide(width, width / 24, 1024);
    shape.drops_hidden = drops;
    return KernelPlan(shape, kHopper, at::kBFloat16).gelu_in_epilogues();
  };
  EXPECT_TRUE(in_epilogues(768, true));
  EXPECT_TRUE(in_epilogues(144, false));
  EXPECT_FALSE(in_epilogues(144, true));  // 576 columns are four and a half tiles
}

TEST(KernelPlan, TheLossIsFusedOfOneChoiceInEachToken) {
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

TEST(KernelPlan, BlocksOfChosenPiecesRunByPlainOperatorsElsewhere) {
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

TEST(KernelPlan, GridsOfSymbolsHaveAnEncoderOfOurOwnWhereTheyFit) {
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

TEST(KernelPlan, OnACpuVectorisedPartsAreOursWhereTheyFit) {
  const auto ours = parts_of(KernelPlan(guide(), kCpu, at::kFloat));
  EXPECT_THAT(ours.at("attention").kernels, HasSubstr("vectorised"));
  EXPECT_THAT(ours.at("norms").kernels, HasSubstr("vectorised"));
  NetworkShape padded = guide();
  padded.padded = true;
  EXPECT_THAT(parts_of(KernelPlan(padded, kCpu, at::kFloat)).at("attention").why, HasSubstr("padding"));
  EXPECT_THAT(parts_of(KernelPlan(wide(60, 5, 20), kCpu, at::kFloat)).at("norms").why,
              HasSubstr("multiples of 8"));
}

}  // namespace
}  // namespace adtrain
