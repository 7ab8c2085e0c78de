#include "kernels/plan/KernelPlan.h"

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
using ::testing::Not;
using testing::parts_of;
using testing::wide;
using testing::with_block;
using Block = NetworkShape::Block;
using Blocks = KernelPlan::Blocks;

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
