#include "run/ScoringMemory.h"

#include <gmock/gmock.h>

#include "base/File.h"
#include "kernels/attention/decoding/KeyValueRing.h"
#include "model/RandomBatch.h"
#include "run/ScoringMemoryTable.h"

namespace adtrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunConfig large(const std::string& name, const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> notices;
  return RunConfig::load(std::filesystem::path(ADTRAIN_SOURCE_DIR "/configs/large") / name, overrides,
                         notices);
}

/// The bits of an element are those of the format, but for the heads, biases and norms in 16 bits.
TEST(ScoringMemory, LinearLayersHaveTheBitsOfTheirFormat) {
  const RunConfig config = large("darkroom_330m.yaml");
  const ScoringMemory memory(config);
  const auto bits = [&](WeightFormat format) {
    return 8.0 * static_cast<double>(memory.weight_bytes(format)) /
           static_cast<double>(memory.parameter_count());
  };
  EXPECT_EQ(bits(WeightFormat::kFloat32), 32);
  EXPECT_EQ(bits(WeightFormat::kSixteenBits), 16);
  EXPECT_NEAR(bits(WeightFormat::kInt8), 8, 0.1);
  EXPECT_NEAR(bits(WeightFormat::kFourBits), 4.5, 0.1);
  EXPECT_NEAR(bits(WeightFormat::kFourBitsDouble), 4.127, 0.1);
}

TEST(ScoringMemory, LayersThatAreSkippedStayInSixteenBits) {
  const RunConfig all = large("darkroom_330m.yaml"),
                  some = large("darkroom_330m.yaml", {"llm_int8_skip_modules=blocks"});
  const ScoringMemory quantised(all), skipping(some);
  const int64_t whole = skipping.weight_bytes(WeightFormat::kSixteenBits);
  EXPECT_EQ(whole, quantised.weight_bytes(WeightFormat::kSixteenBits));
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kFourBits}) {
    EXPECT_LT(quantised.weight_bytes(format), whole * 6 / 10);
    EXPECT_GT(skipping.weight_bytes(format), whole * 9 / 10);
  }
}

TEST(ScoringMemory, GpusShareTheWeights) {
  const RunConfig config = large("darkroom_330m.yaml", {"score_batch=1"});
  const ScoringMemory memory(config);
  const int64_t weights = memory.weight_bytes(WeightFormat::kFloat32);
  EXPECT_EQ(weights, 4 * memory.parameter_count());
  EXPECT_NEAR(static_cast<double>(memory.parameter_count()), 330e6, 5e6);
  const int64_t one = memory.fullest_gpu_bytes(WeightFormat::kFloat32, 1, 1),
                two = memory.fullest_gpu_bytes(WeightFormat::kFloat32, 2, 1),
                eight = memory.fullest_gpu_bytes(WeightFormat::kFloat32, 8, 1);
  EXPECT_GT(one, weights);
  EXPECT_LT(two, one * 6 / 10);
  EXPECT_LT(eight, two / 2);
  EXPECT_GT(eight, weights / 8);
  EXPECT_GT(memory.fullest_gpu_bytes(WeightFormat::kFloat32, 1, 64), one);
}

TEST(ScoringMemory, KeptKeysTakeWhatTheirRingsDo) {
  for (const std::string name : {"pre_norm", "gpt2", "vintix"}) {
    SCOPED_TRACE(name);
    const testing::Variant variant = testing::variant(name);
    const auto model = testing::small_model(variant);
    const int64_t tokens =
        name == "gpt2" ? 3 * (variant.options.n_transit - 1) + 1 : variant.options.n_transit;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      model->parameters().to(at::kCPU, type);
      const auto ring = kernels::KeyValueRing::like(
          at::empty({5, variant.options.tf_n_head, 1, variant.options.head_size()}, type), tokens);
      EXPECT_EQ(kept_bytes_of_block(*model, 5),
                static_cast<int64_t>(ring.keys.nbytes() + ring.values.nbytes() + ring.key_norms.nbytes()));
    }
  }
}

/// A step is far less than a window, which rows are shown that cannot slide.
TEST(ScoringMemory, RowsThatGrowTakeAStepOrAWindow) {
  const auto gpu = kernels::DeviceTraits::hopper();
  for (const std::string positions : {"alibi", "learned"}) {
    const RunConfig config =
        large("darkroom_330m.yaml", {"transformer_block=xland", "tf_positions=" + positions});
    const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
    const int64_t growing = growing_context_memory(config, *model, gpu, 16).of_gpu,
                  windows = context_memory(config, gpu, at::kFloat, /*quantised=*/false, 16).of_gpu;
    EXPECT_EQ(growing < windows / 4, positions == "alibi") << growing << " of " << windows;
    EXPECT_GE(growing, positions == "alibi" ? kept_bytes_of_block(*model, 16) : windows)
        << "libtorch's attention copies keys and values in fp32";
  }
}

/// Products with outliers take some rows' copies, whatever the batch.
TEST(ScoringMemory, ProductsWithOutliersCount) {
  const auto gpu = kernels::DeviceTraits::hopper();
  const auto more = [&](at::ScalarType type, int64_t rows) {
    const auto bytes = [&](const char* threshold) {
      const RunConfig config =
          large("darkroom_330m.yaml", {"load_in_8bit=true", std::string("llm_int8_threshold=") + threshold});
      return context_memory(config, gpu, type, /*quantised=*/true, rows).of_gpu;
    };
    return bytes("6.0") - bytes("0");
  };
  // Rows at once, a code of each element; and sums of fewer rows, which have no tiles.
  constexpr int64_t kOfHiddenLayer = 4096 * 4096 + 4 * 63 * 128 * 256;
  EXPECT_EQ(more(at::kBFloat16, 16), kOfHiddenLayer);
  EXPECT_EQ(more(at::kBFloat16, 64), kOfHiddenLayer);
  constexpr int64_t kByOperators = 4096 * (1024 + 8 * 4096);  // of the hidden layer, a code, and two sums
  EXPECT_EQ(more(at::kFloat, 16), kByOperators);
}

TEST(ScoringMemory, TheTableHasThreeDigitsOfASmallNetwork) {
  const RunConfig small = large("darkroom_25m.yaml", {"score_batch=1", "tf_n_embd=32", "tf_n_layer=4",
                                                      "tf_n_head=2", "tf_n_inner=128", "n_transit=16"});
  const std::string table = scoring_memory_table({small}, {1, 2});
  EXPECT_EQ(ScoringMemory(small).weight_bytes(WeightFormat::kFloat32), 259'476);
  EXPECT_THAT(table, HasSubstr("| fp32 | 0.000259 | "));
  EXPECT_THAT(table, HasSubstr("| bf16, fp16 | 0.000130 | "));
  EXPECT_THAT(table, HasSubstr("| 4 bit | 0.0000425 | "));
  EXPECT_THAT(table, Not(HasSubstr("| 0.00 |")));
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
