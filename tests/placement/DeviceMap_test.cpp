#include "placement/DeviceMap.h"

#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// 100 before the blocks, blocks of 1000 in two layers, 200 behind them.
std::vector<PlacedModule> network(int64_t blocks) {
  std::vector<SizedParameter> parameters = {{"observation.weight", 60}, {"embed_token.weight", 40}};
  for (int64_t block = 0; block < blocks; ++block) {
    parameters.push_back({fmt::format("blocks.{}.attention.qkv.weight", block), 600});
    parameters.push_back({fmt::format("blocks.{}.mlp.up.weight", block), 390});
    parameters.push_back({fmt::format("blocks.{}.mlp.up.bias", block), 10});
  }
  parameters.push_back({"final_norm.weight", 20});
  parameters.push_back({"action_head.out.weight", 180});
  return placed_modules(parameters);
}

std::string devices_of(const DeviceMap& map) {
  std::string text;
  for (const DeviceMap::Row& row : map.rows()) text += (text.empty() ? "" : " ") + row.device.text();
  return text;
}

DeviceMap planned(int64_t blocks, const std::string& limits, MapMode mode = MapMode::kBalanced,
                  const ContextMemory& context = {}) {
  return DeviceMap::automatic(network(blocks), MemoryLimits::parse(limits), mode, context);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST(PlacedModules, AreEmbeddingsBlocksAndHead) {
  const std::vector<PlacedModule> modules = network(2);
  ASSERT_EQ(modules.size(), 4U);
  EXPECT_EQ(modules[0].name, "embeddings");
  EXPECT_THAT(modules[0].parts, ElementsAre("observation", "embed_token"));
  EXPECT_EQ(modules[1].name, "blocks.0");
  EXPECT_EQ(modules[2].bytes, 1000);
  EXPECT_THAT(modules[2].layers, ElementsAre(600, 400));
  EXPECT_TRUE(modules[2].is_block);
  EXPECT_THAT(modules[3].parts, ElementsAre("final_norm", "action_head"));
  EXPECT_EQ(total_bytes(modules), 2300);
}

TEST(PlacedModules, WhatTheHeadReadsIsBehindTheBlocksWhereverItComes) {
  const auto modules = placed_modules({{.name = "types.weight", .bytes = 7, .is_behind_blocks = true},
                                       {"embed.weight", 1},
                                       {"blocks.0.w", 2},
                                       {"action.weight", 3}});
  ASSERT_EQ(modules.size(), 3U);
  EXPECT_THAT(modules[0].parameters, ElementsAre(1));
  EXPECT_THAT(modules[2].parameters, ElementsAre(3, 0));
  EXPECT_THAT(modules[2].parts, ElementsAre("action", "types"));
  EXPECT_EQ(modules[2].bytes, 10);
}

TEST(PlacedModules, KnowEveryNetworksBlocks) {
  for (const std::string block :
       {"transformer.blocks.11", "transformer_encoder.layers.11", "transformer.h.11", "blocks.11"}) {
    const auto modules =
        placed_modules({{"embed.weight", 1}, {block + ".x.weight", 2}, {"pred_action.weight", 3}});
    ASSERT_EQ(modules.size(), 3U);
    EXPECT_EQ(modules[1].name, block);
  }
  const auto groups =
      placed_modules({{"groups.a.b.observation.weight", 1}, {"blocks.0.w", 1}, {"groups.c.out.hidden.w", 1}});
  EXPECT_THAT(groups[2].parts, ElementsAre("groups.c.out"));
}

TEST(MemoryLimits, ReadsUnits) {
  const MemoryLimits limits = MemoryLimits::parse("{1: 9GB, 0: \"1.5GiB\", cpu: 1000}");
  EXPECT_EQ(limits.gpus.at(0), 1'610'612'736);
  EXPECT_EQ(limits.gpus.at(1), 9'000'000'000);
  EXPECT_EQ(limits.cpu, 1000);
  EXPECT_EQ(parsed_bytes("2 KiB"), 2048);
  EXPECT_EQ(parsed_bytes("3KB"), 3000);
  EXPECT_EQ(parsed_bytes("10 Gb"), std::nullopt) << "bits are no unit of memory";
  EXPECT_EQ(parsed_bytes("-1"), std::nullopt);
  EXPECT_FALSE(MemoryLimits::parse("{0: 1}").cpu);
}

TEST(MemoryLimits, SaysWhatIsWrong) {
  const auto fault = [](const std::string& text) { return error_of([&] { MemoryLimits::parse(text); }); };
  EXPECT_THAT(fault("{0: lots}"), AllOf(HasSubstr("found 'lots' for 0"), HasSubstr("10GiB (binary)")));
  EXPECT_THAT(fault("{gpu0: 1GB}"), HasSubstr("the device 'gpu0'"));
  EXPECT_THAT(fault("10GB"), HasSubstr("expected a map such as"));
  EXPECT_THAT(fault("{0: 1GB, 0: 2GB}"), HasSubstr("twice"));
  EXPECT_THAT(fault("[1"), HasSubstr("expected a map such as"));
}

// Total 8300. Two GPUs: 8300 / 2 + 1.25 · 1000 = 5400 on GPU 0, which keeps 1000 free until the last block
// is placed: 100 + 4 · 1000 + 1000 ≤ 5400 and no fifth block.
TEST(DeviceMap, BalancedSharesEqually) {
  EXPECT_EQ(devices_of(planned(8, "{0: 10000, 1: 10000}")), "0 0 0 0 0 1 1 1 1 1");
  // Four GPUs: 2075 + 1250 = 3325 each: 100 + 2 · 1000 + 1000; then 3 · 1000; 3 · 1000; the rest.
  EXPECT_EQ(devices_of(planned(8, "{0: 10000, 1: 10000, 2: 10000, 3: 10000}")), "0 0 0 1 1 1 2 2 2 2");
}

// 8300 − 7000 = 1300 on GPU 0, of which it keeps 1000 free. With three GPUs 1 and 2 take all: 8300 / 2 + 1250
// = 5400 on GPU 1.
TEST(DeviceMap, BalancedLow0LeavesTheFirstGpuWhatOthersDoNotTake) {
  const MapMode mode = MapMode::kBalancedLow0;
  EXPECT_EQ(devices_of(planned(8, "{0: 10000, 1: 7000, cpu: 9000}", mode, {.streamed = 1})),
            "0 1 1 1 1 1 1 1 cpu cpu");
  EXPECT_EQ(devices_of(planned(8, "{0: 10000, 1: 10000, 2: 10000}", mode)), "1 1 1 1 1 1 2 2 2 2");
}

TEST(DeviceMap, SequentialFillsOneAfterTheOther) {
  EXPECT_EQ(devices_of(planned(8, "{0: 6100, 1: 10000}", MapMode::kSequential)), "0 0 0 0 0 0 1 1 1 1");
  EXPECT_EQ(devices_of(planned(8, "{0: 20000, 1: 20000}", MapMode::kSequential)), "0 0 0 0 0 0 0 0 0 0");
}

TEST(DeviceMap, SpillsToTheCpuAndNeverComesBack) {
  // GPU 0 keeps room for two blocks. GPU 1 holds three; the head of 200 would fit it and stays behind the
  // blocks on the CPU.
  const DeviceMap map = planned(8, "{0: 3100, 1: 3500, cpu: 100000}");
  EXPECT_EQ(devices_of(map), "0 0 1 1 1 cpu cpu cpu cpu cpu");
  EXPECT_THAT(map.gpus(), ElementsAre(0, 1));
  EXPECT_EQ(map.streaming_device().text(), "0") << "of 2000 and 500 the larger";
  EXPECT_EQ(map.streaming_buffers(), 2);
  // Six modules would be too much for the CPU, five are not: so GPU 0 has room for one block alone.
  const DeviceMap tight = planned(8, "{0: 3100, 1: 3500, cpu: 4100}");
  EXPECT_EQ(devices_of(tight), "0 0 0 1 1 1 cpu cpu cpu cpu");
  EXPECT_EQ(tight.streaming_buffers(), 1);
}

TEST(DeviceMap, AGpuWithRoomForOneModuleThatComesIsUsed) {
  // 100 and 2 · 1000 would be more than it has.
  const DeviceMap map = planned(8, "{0: 1900, cpu: 100000}");
  EXPECT_EQ(devices_of(map), "0 cpu cpu cpu cpu cpu cpu cpu cpu cpu");
  EXPECT_EQ(map.streaming_buffers(), 1);
}

TEST(DeviceMap, ContextMemoryIsTakenFirst) {
  const ContextMemory context = {.of_gpu = 2000};
  // GPU 0 may hold 3000: 100 + 1000 + 1000.
  const DeviceMap map = planned(8, "{0: 5000, 1: 20000}", MapMode::kBalanced, context);
  EXPECT_EQ(devices_of(map), "0 0 1 1 1 1 1 1 1 1");
  EXPECT_EQ(map.rows()[1].spare, 5000 - 2000 - 100 - 1000);
  EXPECT_EQ(map.rows()[1].bytes, 1000);
}

/// The same network, each block of which keeps so much beside its weights.
DeviceMap keeping(int64_t kept, const std::string& limits, MapMode mode, const ContextMemory& context = {}) {
  std::vector<PlacedModule> modules = network(8);
  for (PlacedModule& module : modules) module.kept = module.is_block ? kept : 0;
  return DeviceMap::automatic(modules, MemoryLimits::parse(limits), mode, context);
}

TEST(DeviceMap, WhatBlocksKeepIsOnTheirGpu) {
  // GPU 0: 100 + 3 · 1500, and 1000 free.
  const DeviceMap map = keeping(500, "{0: 6100, 1: 10000}", MapMode::kSequential);
  EXPECT_EQ(devices_of(map), "0 0 0 0 1 1 1 1 1 1");
  EXPECT_EQ(map.rows()[3].bytes, 1000);
  EXPECT_EQ(map.rows()[3].spare, 6100 - 100 - 3 * 1500);
  EXPECT_EQ(map.rows()[9].spare, 10000 - 5 * 1500 - 200);
  // (8300 + 4000) / 2 + 1875 = 8025 on GPU 0, of which 1000 are free: 100 + 4 · 1500.
  EXPECT_EQ(devices_of(keeping(500, "{0: 20000, 1: 20000}", MapMode::kBalanced)), "0 0 0 0 0 1 1 1 1 1");
  EXPECT_EQ(keeping(500, "{0: 12299, 1: 12300}", MapMode::kBalanced).alone_sufficient().text(), "1");
  EXPECT_THAT(error_of([] { keeping(500, "{0: 6100, 1: 3000}", MapMode::kSequential); }),
              HasSubstr("and 1.5 KiB of keys and values, found no room"));
}

TEST(DeviceMap, WhatBlocksOnTheCpuKeepHasRoomOnAGpu) {
  // With 1000 free GPU 0 would hold three blocks, and its 1400 would not do for one that comes and for what
  // five keep. Beside two blocks there are 2600, for one that comes and for what six keep.
  const std::string limits = "{0: 5100, cpu: 100000}";
  const DeviceMap one = keeping(200, limits, MapMode::kSequential, {.streamed = 1});
  EXPECT_EQ(devices_of(one), "0 0 0 cpu cpu cpu cpu cpu cpu cpu");
  EXPECT_EQ(one.kept_by_streamed(), 6 * 200);
  EXPECT_EQ(one.streaming_buffers(), 1);
  // Beside one block there are 3800, for two that come and for what seven keep.
  const DeviceMap two = keeping(200, limits, MapMode::kSequential);
  EXPECT_EQ(devices_of(two), "0 0 cpu cpu cpu cpu cpu cpu cpu cpu");
  EXPECT_EQ(two.streaming_buffers(), 2);
  EXPECT_THAT(error_of([&] { keeping(1000, "{0: 3000, cpu: 100000}", MapMode::kSequential); }),
              AllOf(HasSubstr("beside 7.8 KiB of keys and values"), HasSubstr("eval_batch"),
                    HasSubstr("eval_context: recompute")));
  // Where the CPU computes everything, it keeps everything.
  const DeviceMap none = keeping(200, "{cpu: 100000}", MapMode::kSequential);
  EXPECT_EQ(none.kept_by_streamed(), 0);
  EXPECT_EQ(none.rows().back().spare, 100000 - 8300 - 8 * 200);
}

TEST(DeviceMap, ASingleGpuIsFilledToNineTenthsOfWhatIsFree) {
  MemoryLimits limits = {.gpus = {{0, 10000}}, .cpu = 100000, .from_user = false};
  EXPECT_EQ(devices_of(DeviceMap::automatic(network(9), limits, MapMode::kBalanced, {})),
            "0 0 0 0 0 0 0 cpu cpu cpu cpu");
  limits.from_user = true;
  EXPECT_EQ(devices_of(DeviceMap::automatic(network(9), limits, MapMode::kBalanced, {})),
            "0 0 0 0 0 0 0 0 0 0 0");
}

TEST(DeviceMap, TiedTensorsStayTogether) {
  const auto modules = placed_modules({{"embed.weight", 300},
                                       {"blocks.0.w", 1000},
                                       {"blocks.1.w", 1000},
                                       {"head.bias", 100},
                                       {"head.weight", 300, "embed.weight"}});
  EXPECT_EQ(total_bytes(modules), 2400);
  const DeviceMap map =
      DeviceMap::automatic(modules, MemoryLimits::parse("{0: 2400, 1: 2000}"), MapMode::kSequential, {});
  EXPECT_EQ(devices_of(map), "0 0 0 0");
  const DeviceMap less =
      DeviceMap::automatic(modules, MemoryLimits::parse("{0: 2300, 1: 2000}"), MapMode::kSequential, {});
  EXPECT_EQ(devices_of(less), "0 1 1 0");
  EXPECT_THAT(error_of([&] {
                DeviceMap::given("{embeddings: 0, blocks: 0, head: 1}", modules,
                                 MemoryLimits::parse("{0: 9000, 1: 9000}"), {});
              }),
              HasSubstr("tensors in common"));
}

TEST(DeviceMap, SaysWhatFindsNoRoom) {
  const std::string text =
      error_of([] { planned(8, "{0: 3100, 1: 3500}", MapMode::kBalanced, {.of_gpu = 100}); });
  EXPECT_THAT(text, HasSubstr("blocks.4 and 4 others, 4.1 KiB of the network's 8.1 KiB, found no room"));
  EXPECT_THAT(text, AllOf(HasSubstr("100 B of each GPU for activations"), HasSubstr("GPU 0 3.0 KiB"),
                          HasSubstr("cpu nothing"), HasSubstr("cpu: 30GiB")));
}

TEST(DeviceMap, KnowsWhereOneGpuSuffices) {
  EXPECT_EQ(planned(8, "{0: 8000, 1: 8300}").alone_sufficient().text(), "1");
  EXPECT_EQ(planned(8, "{0: 8299, 1: 8299}").alone_sufficient().text(), "cpu");
  EXPECT_EQ(planned(8, "{0: 8299, 1: 8350}", MapMode::kBalanced, {.of_gpu = 100}).alone_sufficient().text(),
            "cpu");
}

TEST(DeviceMap, PrintsATable) {
  EXPECT_THAT(planned(8, "{0: 3100, 1: 3500, cpu: 100000}").table(),
              ElementsAre("module               device      bytes   spare",  //
                          "embeddings           0             100   3 000",  //
                          "blocks.0             0           1 000   2 000",  //
                          "blocks.1 … blocks.3  1       3 × 1 000     500",  //
                          "blocks.4 … blocks.7  cpu     4 × 1 000  96 000",  //
                          "head                 cpu           200  95 800"));
}

DeviceMap given(const std::string& text, const std::string& limits = "{0: 9000, 1: 9000, cpu: 9000}") {
  return DeviceMap::given(text, network(3), MemoryLimits::parse(limits), {});
}

TEST(GivenMap, TheLongestNameHolds) {
  EXPECT_EQ(devices_of(given("{embeddings: 0, blocks: 0, blocks.1: cuda:1, head: cpu}")), "0 0 1 0 cpu");
  EXPECT_EQ(devices_of(given("{\"\": 1, blocks.2: 0}")), "1 1 1 0 1");
  EXPECT_EQ(devices_of(given("{observation: 0, embed_token: 0, blocks: 1, final_norm: 1, action_head: 1}")),
            "0 1 1 1 1");
  const auto post_norm = placed_modules({{"embed.weight", 1},
                                         {"transformer_encoder.layers.0.w", 1},
                                         {"transformer_encoder.layers.1.w", 1},
                                         {"pred_action.weight", 1}});
  for (const std::string one : {"blocks.1", "transformer_encoder.layers.1"}) {
    EXPECT_EQ(devices_of(DeviceMap::given("{embeddings: 0, blocks: 0, head: 0, " + one + ": 1}", post_norm,
                                          MemoryLimits::parse("{0: 9, 1: 9}"), {})),
              "0 0 1 0");
  }
  const auto pre_norm = placed_modules({{"embed.weight", 1},
                                        {"transformer.blocks.0.w", 1},
                                        {"transformer.blocks.1.w", 1},
                                        {"pred_action.weight", 1}});
  for (const std::string all : {"transformer", "transformer.blocks", "blocks"}) {
    EXPECT_EQ(devices_of(DeviceMap::given("{embeddings: 0, " + all + ": 0, blocks.1: 1, head: 1}", pre_norm,
                                          MemoryLimits::parse("{0: 9, 1: 9}"), {})),
              "0 0 1 1");
  }
  EXPECT_THAT(devices_in_map("{a: 3, b: cpu, c: 1, d: 3}"),
              ElementsAre(MapDevice{}, MapDevice{1}, MapDevice{3}));
}

TEST(GivenMap, CountsWhatBlocksKeep) {
  const auto error_with = [](int64_t kept, const std::string& map) {
    std::vector<PlacedModule> modules = network(3);
    for (PlacedModule& module : modules) module.kept = module.is_block ? kept : 0;
    return error_of([&] { DeviceMap::given(map, modules, MemoryLimits::parse("{0: 4000, cpu: 9000}"), {}); });
  };
  EXPECT_EQ(error_with(233, "{\"\": 0}"), "none");
  EXPECT_THAT(error_with(234, "{\"\": 0}"), HasSubstr("head exceeds the limit of 0"));
  EXPECT_EQ(error_with(900, "{\"\": 0, blocks: cpu}"), "none");
  EXPECT_THAT(error_with(901, "{\"\": 0, blocks: cpu}"), HasSubstr("of keys and values that it keeps there"));
}

TEST(GivenMap, SaysWhatIsWrong) {
  const auto fault = [](const std::string& text) { return error_of([&] { given(text); }); };
  EXPECT_THAT(fault("{blocks: 0, head: 0}"),
              AllOf(HasSubstr("found no device for observation"), HasSubstr("add \"embeddings: 0\"")));
  EXPECT_THAT(fault("{embeddings: 0, blocks: 0, hed: 1}"),
              AllOf(HasSubstr("found 'hed', which places no module"), HasSubstr("did you mean head?")));
  EXPECT_THAT(fault("{\"\": 0, bloks.1: 1}"),
              AllOf(HasSubstr("'bloks.1'"), HasSubstr("did you mean blocks.1?")));
  EXPECT_THAT(fault("{\"\": 0, blocks.1.mlp: 1}"), HasSubstr("never split"));
  EXPECT_THAT(
      fault("{\"\": 0, embed_token: 1}"),
      HasSubstr("found observation on 0 and embed_token on 1; expected one device for both: all modules "
                "before the blocks"));
  EXPECT_THAT(fault("{\"\": 2}"), HasSubstr("found embeddings on 2; expected one of the devices"));
  EXPECT_THAT(fault("{\"\": disk}"), HasSubstr("not read from disk"));
  EXPECT_THAT(fault("{\"\": cuda}"), HasSubstr("found 'cuda' for \"\" (everything); expected the number"));
  EXPECT_THAT(fault("{embeddings: cuda}"), HasSubstr("found 'cuda' for 'embeddings'; expected the number"));
  EXPECT_THAT(fault("{embeddings: 0, embeddings: 1, blocks: 1, head: 1}"),
              HasSubstr("found 'embeddings' twice; expected one device for it"));
  EXPECT_THAT(fault("{\"\": 0, \"\": 1}"), HasSubstr("found \"\" (everything) twice"));
  EXPECT_THAT(fault("{\"\": 0, embeddings: 0, blocks: 0, head: 0}"),
              HasSubstr("found \"\" (everything), which places no module: other names place all"));
  const auto post_norm = placed_modules({{"embed.weight", 1}, {"transformer_encoder.layers.0.w", 1}});
  const auto fault_of_post_norm = [&](const std::string& text) {
    return error_of([&] { DeviceMap::given(text, post_norm, MemoryLimits::parse("{0: 9}"), {}); });
  };
  EXPECT_THAT(fault_of_post_norm("{embeddings: 0}"), HasSubstr("add \"blocks.0: 0\""));
  EXPECT_THAT(fault_of_post_norm("{embeddings: 0, bloks: 0}"), HasSubstr("did you mean blocks?"));
  EXPECT_THAT(fault("fastest"), HasSubstr("expected a map of modules"));
  EXPECT_THAT(error_of([] { given("{\"\": 0}", "{0: 3000}"); }),
              AllOf(HasSubstr("blocks.2 exceeds the limit of 0 by 100 B"), HasSubstr("raise max_memory")));
}

}  // namespace
}  // namespace adtrain
