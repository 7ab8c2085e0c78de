#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/Document.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

const fs::path kExamples = fs::path(ADTRAIN_SOURCE_DIR) / "configs";

/// The composed file's values by key.
std::map<std::string, std::string> values_of(const fs::path& file) {
  Document document;
  document.read_file(file);
  EXPECT_THAT(document.errors(), IsEmpty());
  std::map<std::string, std::string> values;
  for (const Entry& entry : document.entries()) values[entry.key] = entry.text;
  return values;
}

TEST(Examples, EveryFileReadsWithoutAWord) {
  size_t files = 0;
  for (const auto& file : fs::recursive_directory_iterator(kExamples)) {
    if (file.path().extension() != ".yaml") continue;
    ++files;
    Document document;
    document.read_file(file.path());
    EXPECT_THAT(document.errors(), IsEmpty());
    EXPECT_THAT(document.warnings(), IsEmpty());
    for (const Entry& entry : document.entries()) {
      EXPECT_EQ(entry.kind, Entry::Kind::kScalar) << entry.origin.text() << ": " << entry.key;
    }
  }
  EXPECT_GE(files, 25U);
}

TEST(Examples, RunsJoinTheirFamilyItsSourceAndTheirModel) {
  const std::map<std::string, std::string> rollout = {
      {"darkroom", "20"}, {"darkroompermuted", "50"}, {"darkkeytodoor", "50"}};
  for (const auto& [family, steps] : rollout) {
    for (const std::string model : {"ad_dicp", "ad_postnorm", "ad_compressed", "gpt2"}) {
      const std::string name = family + "_" + model;
      auto values = values_of(kExamples / "run" / (name + ".yaml"));
      EXPECT_EQ(values["run_name"], name);
      EXPECT_EQ(values["env"], family);
      EXPECT_EQ(values["horizon"], steps);
      EXPECT_EQ(values["n_steps"], steps);
      EXPECT_EQ(values["model"], model == "gpt2" ? "GPT2" : "AD");
      EXPECT_EQ(values.contains("use_compressed_context"), model == "ad_compressed");
    }
  }
}

TEST(Examples, TheQuickstartIsTheMeasuredRecipe) {
  const auto values = values_of(kExamples / "quickstart.yaml");
  const std::map<std::string, std::string> recipe = {
      {"env", "darkroom"},         {"env_split_seed", "0"},
      {"n_steps", "20"},           {"batch_size", "50"},
      {"n_epochs", "20"},          {"alg_seed", "0"},
      {"tf_n_embd", "32"},         {"tf_n_layer", "3"},
      {"tf_n_head", "2"},          {"tf_n_inner", "128"},
      {"n_transit", "80"},         {"loss_positions", "all"},
      {"episode_stride", "5"},     {"lr", "0.003"},
      {"global_batch_size", "32"}, {"train_timesteps", "4000"},
      {"num_warmup_steps", "100"}, {"tf_dropout", "0.1"},
      {"tf_attn_dropout", "0.0"},  {"beta1", "0.9"},
      {"beta2", "0.99"},           {"weight_decay", "0.01"},
      {"label_smoothing", "0.0"},  {"max_grad_norm", "1.0"},
      {"eval_temperature", "0.7"}, {"eval_forget_unrewarded", "1"}};
  for (const auto& [key, value] : recipe) EXPECT_EQ(values.at(key), value) << key;
}

}  // namespace
}  // namespace adtrain
