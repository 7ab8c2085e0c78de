#include "run/ScoringMemory.h"

#include <gtest/gtest.h>

#include "base/File.h"
#include "run/Estimate.h"

namespace adtrain {
namespace {

RunConfig large(const std::string& name, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> notices;
  return RunConfig::load(std::filesystem::path(ADTRAIN_SOURCE_DIR "/configs/large") / name, overrides,
                         notices);
}

TEST(ScoringMemory, AMatrixOfABlockHasTheBitsOfItsFormat) {
  const std::string matrix = "transformer.blocks.3.mlp.w1.weight";
  const std::vector<int64_t> shape = {4096, 1024};
  constexpr int64_t kElements = 4096 * 1024;
  EXPECT_EQ(bytes_in(WeightFormat::kFloat32, matrix, shape), 4 * kElements);
  EXPECT_EQ(bytes_in(WeightFormat::kSixteenBits, matrix, shape), 2 * kElements);
  EXPECT_EQ(bytes_in(WeightFormat::kInt8, matrix, shape), kElements + 4 * 4096);
  EXPECT_EQ(8 * bytes_in(WeightFormat::kFourBits, matrix, shape), 4.5 * kElements);
  EXPECT_NEAR(8.0 * static_cast<double>(bytes_in(WeightFormat::kFourBitsDouble, matrix, shape)) / kElements,
              4.127, 0.0005);
  // Ragged ends have a whole scale of their own: 3 codes, 1 scale of 4 bytes, or of a byte and 4 of its own.
  EXPECT_EQ(bytes_in(WeightFormat::kFourBits, matrix, {1, 5}), 3 + 4);
  EXPECT_EQ(bytes_in(WeightFormat::kFourBitsDouble, matrix, {1, 5}), 3 + 1 + 4);
  for (const WeightFormat format :
       {WeightFormat::kInt8, WeightFormat::kFourBits, WeightFormat::kFourBitsDouble}) {
    EXPECT_EQ(bytes_in(format, "pred_action.weight", {5, 1024}), 2 * 5 * 1024) << "the action head";
    EXPECT_EQ(bytes_in(format, "transformer.blocks.3.norm_1.weight", {1024}), 2 * 1024) << "no matrix";
  }
}

TEST(ScoringMemory, GpusShareTheWeights) {
  const RunConfig config = large("darkroom_330m.yaml", {"score_batch=1"});
  const ScoringMemory memory(config);
  const int64_t weights = memory.weight_bytes(WeightFormat::kFloat32);
  EXPECT_EQ(weights, 4 * memory.parameter_count());
  EXPECT_NEAR(static_cast<double>(memory.parameter_count()), 330e6, 5e6);
  const int64_t one = *memory.fullest_gpu_bytes(WeightFormat::kFloat32, 1, 1),
                two = *memory.fullest_gpu_bytes(WeightFormat::kFloat32, 2, 1),
                eight = *memory.fullest_gpu_bytes(WeightFormat::kFloat32, 8, 1);
  EXPECT_GT(one, weights);
  EXPECT_LT(two, one * 6 / 10);
  EXPECT_LT(eight, two / 2);
  EXPECT_GT(eight, weights / 8);
  EXPECT_GT(*memory.fullest_gpu_bytes(WeightFormat::kFloat32, 1, 64), one);

  const RunConfig whole =
      large("darkroom_25m.yaml", {"transformer_block=auto", "use_compressed_context=true"});
  EXPECT_EQ(ScoringMemory(whole).fullest_gpu_bytes(WeightFormat::kFloat32, 2, 1), std::nullopt)
      << "a network that runs on one device alone";
}

/// The page's table is this program's answer, to the letter.
TEST(ScoringMemory, ThePageHasTheTableThatTheProgramPrints) {
  std::vector<RunConfig> configs;
  for (const char* const name : {"darkroom_25m.yaml", "darkroom_330m.yaml", "darkroom_1b.yaml"})
    configs.push_back(large(name, {"score_batch=16"}));
  const std::string page = read_file(ADTRAIN_SOURCE_DIR "/docs/several-gpus.md");
  const std::string
      command = "adtrain estimate configs/large/darkroom_{25m,330m,1b}.yaml --table --set score_batch=16",
      table = scoring_memory_table(configs, {1, 2, 4, 8});
  EXPECT_TRUE(page.find(command + "\n") != std::string::npos) << "docs/several-gpus.md lacks " << command;
  EXPECT_TRUE(page.find(table) != std::string::npos) << "docs/several-gpus.md lacks what it prints:\n"
                                                     << table;
}

}  // namespace
}  // namespace adtrain
