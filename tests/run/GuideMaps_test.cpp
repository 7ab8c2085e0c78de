#include "run/GuideMaps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "memory/AutoBatchSize.h"
#include "run/RunConfig.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GuideMaps : public testing::Test {
 protected:
  RunConfig load(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
    write_file_atomically(folder_.path() / "guide.yaml", yaml + "transformer_block: pre_norm\n");
    notices_.clear();
    return RunConfig::load(folder_.path() / "guide.yaml", overrides, notices_);
  }
  /// The errors of a configuration; "none" where it loads.
  std::string errors(const std::string& yaml) {
    try {
      load(yaml);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "none";
  }

  TemporaryFolder folder_;
  std::vector<std::string> notices_;
};

TEST_F(GuideMaps, PairsOfMapsAreKeys) {
  const RunConfig config = load(
      "experiment:\n  name: first\n  batch_size: auto_batch_size\n  batch_size_safety_margin: 0.8\n  seed: "
      "5\n"
      "training:\n  learning_rate: 1.0e-4\n  mixed_precision: bf16\n  gradient_accumulation_steps: 2\n");
  EXPECT_EQ(config.run.run_name, "first");
  EXPECT_EQ(config.training.train_batch_size, kAutoBatchSize);
  EXPECT_EQ(config.training.batch_size_safety_margin, 0.8);
  EXPECT_EQ(config.training.seed, 5);
  EXPECT_EQ(config.training.lr, 1e-4);
  EXPECT_EQ(config.training.mixed_precision, Precision::kBFloat16);
  EXPECT_EQ(config.training.gradient_accumulation_steps, 2);
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(GuideMaps, AnUnknownPairIsAnErrorWithTheNearestKey) {
  const std::string found = errors("experiment:\n  num_epochs: 3\n  bach_size_safety_margin: 0.8\n");
  EXPECT_THAT(found, HasSubstr("experiment.num_epochs"));
  EXPECT_THAT(found, HasSubstr("did you mean train_timesteps"));
  EXPECT_THAT(found, HasSubstr("did you mean batch_size_safety_margin"));
}

TEST_F(GuideMaps, ModelLoadingThatHasACounterpartIsUnderstood) {
  const RunConfig config = load(
      "model_loading:\n  device_map: cuda:0\n  torch_dtype: torch.bfloat16\n  load_in_8bit: false\n"
      "  quantization_config: null\n");
  EXPECT_EQ(config.run.device, DeviceChoice::kCuda);
  EXPECT_EQ(config.training.mixed_precision, Precision::kBFloat16);
  EXPECT_EQ(config.evaluation.chosen_type(), at::kBFloat16);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(load("device_map: cpu\ntorch_dtype: float32\n").run.device, DeviceChoice::kCpu);
  EXPECT_EQ(load("mixed_precision: fp16\ntorch_dtype: bfloat16\n").training.mixed_precision,
            Precision::kFloat16);
  const RunConfig both = load("mixed_precision: bf16\ntorch_dtype: float\n");
  EXPECT_EQ(both.training.mixed_precision, Precision::kBFloat16) << "beside torch_dtype it says what it says";
  EXPECT_EQ(both.evaluation.chosen_type(), at::kFloat);
  EXPECT_THAT(both.resolved_yaml(), HasSubstr("torch_dtype: fp32"));
  EXPECT_FALSE(load("torch_dtype: auto\n").evaluation.chosen_type());
  const RunConfig spread = load(
      "model_loading:\n  device_map: {embeddings: 0, blocks: 1, head: cpu}\n  max_memory: {0: 10GiB, cpu: "
      "1GB}\n");
  EXPECT_EQ(spread.placement.device_map, "{embeddings: 0, blocks: 1, head: cpu}");
  EXPECT_EQ(spread.placement.limits()->gpus.at(0), int64_t{10} << 30);
  EXPECT_EQ(load("device_map: auto\nmax_memory: null\n").placement.mode(), MapMode::kBalanced);
  EXPECT_EQ(load("device_map: auto\n", {"device_map=null"}).placement.device_map, std::nullopt);
  EXPECT_EQ(load("device_map: auto\n", {"device_map={\"\": 0}"}).placement.device_map, "{\"\": 0}");
  EXPECT_THAT(notices_, IsEmpty());
}

TEST_F(GuideMaps, YieldToTheCommandLineUnderAnyName) {
  const std::string guide =
      "model_loading: {torch_dtype: float32, device_map: cuda}\ntraining: {max_grad_norm: 0.5, seed: 3}\n";
  const RunConfig config =
      load(guide, {"mixed_precision=bf16", "device_map=cpu", "grad_clip=1", "experiment={seed: 4}"});
  EXPECT_EQ(config.training.mixed_precision, Precision::kBFloat16);
  EXPECT_EQ(config.run.device, DeviceChoice::kCpu);
  EXPECT_EQ(config.training.max_grad_norm, 1);
  EXPECT_EQ(config.training.seed, 4);
  EXPECT_THAT(notices_, IsEmpty());
  EXPECT_EQ(load("mixed_precision: bf16\n", {"torch_dtype=float32"}).training.mixed_precision,
            Precision::kFloat32);
}

TEST_F(GuideMaps, YieldToTheIncludingFile) {
  write_file_atomically(folder_.path() / "base.yaml",
                        "experiment: {seed: 5, learning_rate: 0.1}\nmodel_loading: {torch_dtype: float16}\n");
  const RunConfig config =
      load("include: base.yaml\ntraining: {seed: 7}\nclip_grad_norm: 0.25\nmixed_precision: bf16\n");
  EXPECT_EQ(config.training.seed, 7);
  EXPECT_EQ(config.training.lr, 0.1);
  EXPECT_EQ(config.training.mixed_precision, Precision::kBFloat16);
}

TEST_F(GuideMaps, OneFileMayNotContradictItself) {
  EXPECT_THAT(errors("experiment: {seed: 5}\ntraining: {seed: 7}\n"),
              HasSubstr("guide.yaml:2: training.seed: found '7', but seed is '5'"));
}

TEST_F(GuideMaps, QuantisedLoadingIsThatOfBitsandbytes) {
  const RunConfig config = load(
      "model_loading:\n  load_in_4bit: true\n  quantization_config:\n    bnb_4bit_quant_type: fp4\n"
      "    bnb_4bit_compute_dtype: torch.bfloat16\n    bnb_4bit_use_double_quant: true\n"
      "    bnb_4bit_quant_storage: uint8\n    quant_method: bitsandbytes\n    llm_int8_threshold: null\n"
      "    llm_int8_skip_modules: [lm_head, '*.down']\n    llm_int8_enable_fp32_cpu_offload: false\n");
  EXPECT_THAT(notices_, IsEmpty());
  const WeightQuantisation how = config.quantisation.weights().value();
  EXPECT_EQ(how.code, QuantisedCode::fp4);
  EXPECT_TRUE(how.double_quantisation);
  EXPECT_EQ(how.compute_type, at::kBFloat16);
  EXPECT_EQ(how.name(), "fp4-double");
  EXPECT_EQ(config.quantisation.skip_modules, "lm_head,*.down");
  const RunConfig rows = load("quantization_config: {load_in_8bit: true, llm_int8_threshold: 6.0}\n");
  EXPECT_EQ(rows.quantisation.weights()->name(), "int8-outliers-6");
  EXPECT_EQ(load("load_in_8bit: true\n").quantisation.weights()->name(), "int8");
  EXPECT_EQ(load("load_in_4bit: true\n", {"load_in_4bit=false"}).quantisation.weights().has_value(), false);
  EXPECT_EQ(load("seed: 1\n", {"quantization_config={load_in_4bit: true}"}).quantisation.weights()->name(),
            "nf4");
  // As Transformers' to_dict() writes it.
  EXPECT_EQ(load("quantization_config: {_load_in_4bit: true, _load_in_8bit: false, load_in_4bit: true, "
                 "load_in_8bit: false, bnb_4bit_quant_storage: uint8, llm_int8_skip_modules: null, "
                 "llm_int8_threshold: 6.0, quant_method: bitsandbytes}\n")
                .quantisation.weights()
                ->name(),
            "nf4");
  EXPECT_EQ(load("quantization_config: {_load_in_8bit: true}\n").quantisation.weights()->name(), "int8");
  EXPECT_EQ(load("load_in_4bit: false\n", {"quantization_config={_load_in_4bit: true}"})
                .quantisation.weights()
                ->name(),
            "nf4")
      << "as a run's own file has every key";
  EXPECT_THROW(load("quantization_config: {_load_in_4bit: true, load_in_4bit: false}\n"), ConfigError);
  load("bnb_4bit_quant_type: fp4\nllm_int8_threshold: 6\n");
  EXPECT_THAT(notices_,
              testing::ElementsAre("bnb_4bit_quant_type has no effect: it is for load_in_4bit: true",
                                   "llm_int8_threshold has no effect: it is for load_in_8bit: true"));
  notices_.clear();
  load("max_memory: {0: 10GB, cpu: 20GB}\n");
  EXPECT_THAT(notices_, testing::ElementsAre(testing::HasSubstr("max_memory has no effect")));
}

TEST_F(GuideMaps, ModelLoadingThatIsNotThereIsRefused) {
  const std::string found = errors(
      "model_loading:\n  device_map: [0, 1]\n"
      "quantization_config: {bnb_4bit_quant_storage: int16, bnb_4bit_compute_dtype: int8}\ntorch_dtype: "
      "int8\n");
  EXPECT_THAT(found, HasSubstr("guide.yaml:2: device_map: found the list [0, 1]; expected auto, balanced"));
  EXPECT_THAT(found, HasSubstr("guide.yaml:3: bnb_4bit_quant_storage: found 'int16'; weights of 4 bits are"));
  EXPECT_THAT(found, HasSubstr("bnb_4bit_compute_dtype: found 'int8'; expected float32, float16 or"));
  EXPECT_THAT(found, HasSubstr("for training the same as mixed_precision: no, fp16 or bf16"));
  EXPECT_THAT(found, HasSubstr("4 errors"));
}

TEST_F(GuideMaps, WhatIsNoDeviceMapIsRefused) {
  const std::string found = errors("model_loading: {device_map: balansed, max_memory: {0: lots}}\n");
  EXPECT_THAT(found, HasSubstr("guide.yaml:1: device_map: found 'balansed'; expected auto, balanced"));
  EXPECT_THAT(found, HasSubstr("did you mean balanced?"));
  EXPECT_THAT(found, HasSubstr("max_memory: found 'lots' for 0; expected a size such as 10GiB"));
  EXPECT_THAT(errors("device_map: {head: gpu}\n"),
              HasSubstr("device_map: found 'gpu' for 'head'; expected the number"));
}

/// configs/gpus: as docs/benchmarks.md measured it, 512 sequences a GPU in bf16.
TEST_F(GuideMaps, RecommendationsByNumberOfGpusAreThoseMeasured) {
  for (const int64_t gpus : {2, 4, 8}) {
    const auto file =
        std::filesystem::path(ADTRAIN_SOURCE_DIR) / "configs/gpus" / (std::to_string(gpus) + ".yaml");
    std::vector<std::string> notices;
    const RunConfig config = RunConfig::load(file, {}, notices);
    EXPECT_EQ(config.training.share(0, gpus).micro_batch, 512) << gpus;
    EXPECT_EQ(config.training.mixed_precision, Precision::kBFloat16);
    EXPECT_EQ(config.model.tf_n_embd, 64);
    EXPECT_EQ(config.model.n_transit, 240);
    EXPECT_THAT(notices, IsEmpty());
  }
}

}  // namespace
}  // namespace adtrain
