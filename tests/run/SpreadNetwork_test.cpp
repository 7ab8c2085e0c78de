#include "run/SpreadNetwork.h"

#include <gmock/gmock.h>

#include "base/Error.h"
#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunConfig configured(const std::string& more) {
  const TemporaryFolder folder;
  write_file_atomically(
      folder.path() / "run.yaml",
      "env: darkroom\ntf_n_embd: 32\ntf_n_layer: 4\ntf_n_head: 2\nn_transit: 16\ndevice: cpu\n" + more);
  std::vector<std::string> notices;
  return RunConfig::load(folder.path() / "run.yaml", {}, notices);
}

std::string refused(const RunConfig& config) {
  std::vector<std::string> notices;
  try {
    SpreadNetwork::is_wanted(config, notices);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(SpreadNetwork, IsForNetworksThatRunInParts) {
  std::vector<std::string> notices;
  const std::string limits = "max_memory: {0: 1GB, 1: 1GB}\n", map = "device_map: {\"\": 0}\n";
  EXPECT_FALSE(SpreadNetwork::is_wanted(configured("transformer_block: xland\n"), notices));
  EXPECT_TRUE(SpreadNetwork::is_wanted(configured("device_map: auto\n" + limits), notices));
  EXPECT_TRUE(
      SpreadNetwork::is_wanted(configured("model: GPT2\ndevice_map: sequential\n" + limits), notices));
  EXPECT_TRUE(SpreadNetwork::is_wanted(configured("transformer_block: xland\n" + map), notices));
  EXPECT_TRUE(SpreadNetwork::is_wanted(
      configured("use_compressed_context: true\ncompress_interval: 6\ndevice_map: auto\n" + limits),
      notices));
  EXPECT_THAT(notices, IsEmpty());
  const std::string plugin = "plugins: " ADTRAIN_BINARY_DIR "/libsample_plugin.so\nmodel: sample_network\n";
  EXPECT_FALSE(SpreadNetwork::is_wanted(configured(plugin + "device_map: auto\n" + limits), notices));
  EXPECT_THAT(notices, ElementsAre(HasSubstr("device_map: auto has no effect: a plug-in's network")));
  EXPECT_THAT(refused(configured(plugin + "device_map: balanced\n")),
              HasSubstr("run.yaml:9: device_map: found 'balanced'"));
  EXPECT_THAT(refused(configured(plugin + map)), HasSubstr("expected null or auto"));
}

/// As guides' files ask for it: the CPU's threads compute together then, as without it.
TEST(SpreadNetwork, AModeWithoutLimitsHasNothingToDivideOnTheCpu) {
  std::vector<std::string> notices;
  EXPECT_FALSE(SpreadNetwork::is_wanted(configured("device_map: auto\n"), notices));
  EXPECT_THAT(notices,
              ElementsAre(HasSubstr("device_map: auto has no effect: there are no GPUs, and max_memory "
                                    "names no logical devices")));
}

/// By arithmetic alone, the same on every machine: 259 476 / 2 + 1.25 · 50 816 = 193 258 on GPU 0, which
/// keeps room for a block: 55 552 + 50 816 + 50 816.
TEST(SpreadNetwork, APlannedMapIsATable) {
  const std::string network = "transformer_block: xland\ndevice_map: auto\nscore_batch: 4\n";
  EXPECT_THAT(planned_map(configured(network)), IsEmpty());
  EXPECT_THAT(
      planned_map(configured(network + "max_memory: {0: 1MB, 1: 1MB}\n")),
      ElementsAre("device map within max_memory, with 270.5 KiB for a pass of 4 rows in fp32 on each GPU:",
                  "  module               device       bytes    spare",
                  "  embeddings           0           55 552  667 456",
                  "  blocks.0             0           50 816  616 640",
                  "  blocks.1 … blocks.3  1       3 × 50 816  570 560",
                  "  head                 1              660  569 900",
                  "device 0 alone holds the whole network: without device_map it would be faster, with a "
                  "rank for each device"));
  EXPECT_THROW(planned_map(configured(network + "max_memory: {0: 1KB}\n")), ConfigError);
  const std::string found = "transformer_block: xland\ndevice_map: sequential\nscore_batch: auto\n";
  EXPECT_THAT(planned_map(configured(found + "max_memory: {0: 900KB}\n")).front(),
              HasSubstr("for a pass of 8 rows"))
      << "16 take 1.1 MB beside 0.3 MB of weights";
  EXPECT_THAT(planned_map(configured(found + "max_memory: {0: 900KB, cpu: 1GB}\n")).front(),
              HasSubstr("for a pass of 8 rows"))
      << "a cpu that has room for any pass takes nothing from the GPUs";
  EXPECT_THAT(planned_map(configured(network + "max_memory: {0: 200KB, cpu: 1GB}\n")).back(),
              HasSubstr("no GPU of the map holds a module beside 270.5 KiB for a pass of 4 rows: the cpu"));
}

}  // namespace
}  // namespace adtrain
