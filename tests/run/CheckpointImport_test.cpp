#include <algorithm>
#include <cstring>
#include <map>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "checkpoint/CheckpointStore.h"
#include "checkpoint/Safetensors.h"
#include "model/AlgorithmDistillation.h"
#include "model/AnySpaceBatch.h"
#include "run/RunConfig.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/ImportedNetwork.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"
#include "training/LearningRateSchedule.h"
#include "training/Optimizer.h"
#include "training/TrainingState.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Files by the network of one of the Python projects: tests/run/project_checkpoints/README.md.
constexpr const char* kOfProject = "project_";

/// `.pt` files of real PyTorch, with what the network in them computes.
class CheckpointImport : public ::testing::TestWithParam<std::string> {
 protected:
  void write(const std::string& variant) const {
    if (variant.starts_with(kOfProject)) {
      fs::copy(ADTRAIN_SOURCE_DIR "/tests/run/project_checkpoints/" + variant.substr(std::strlen(kOfProject)),
               folder_.path(), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
      return read_expected();
    }
    const Finished written = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                       quoted(ADTRAIN_SOURCE_DIR "/tests/interop/write_torch_checkpoint.py") +
                                       " " + variant + " " + quoted(folder_.path().string()));
    ASSERT_EQ(written.exit_code, 0) << written.output;
    read_expected();
  }
  void read_expected() const {
    for (NamedTensor& named : read_safetensors(folder_.path() / "expected.safetensors").tensors)
      expected_[named.name] = named.tensor;
  }
  /// Further files NAME.pt, each made of that one by Python lines that change `file`; one start of Python
  /// writes all of them, as torch takes seconds to load.
  void write_changed(const std::map<std::string, std::string>& lines_of) const {
    std::string script =
        "import copy, pathlib, sys, torch\nfolder = pathlib.Path(sys.argv[1])\n"
        "written = torch.load(folder / 'trained.pt', weights_only=False)\n";
    for (const auto& [name, lines] : lines_of)
      script +=
          "file = copy.deepcopy(written)\n" + lines + "\ntorch.save(file, folder / '" + name + ".pt')\n";
    write_file_atomically(folder_.path() / "change.py", script);
    const Finished changed =
        run_shell(quoted(ADTRAIN_PYTHON) + " " + quoted((folder_.path() / "change.py").string()) + " " +
                  quoted(folder_.path().string()));
    ASSERT_EQ(changed.exit_code, 0) << changed.output;
  }
  ImportRequest request() const {
    ImportRequest request;
    request.file = folder_.path() / "trained.pt";
    request.out = folder_.path() / "runs" / "imported";
    return request;
  }
  template <class Refusal>
  std::string refusal_of(const ImportRequest& request) const {
    try {
      import_checkpoint(request);
      return "none";
    } catch (const Refusal& error) {
      return error.what();
    }
  }
  Batch batch() const {
    Batch batch;
    const std::pair<const char*, at::Tensor Batch::*> kFields[] = {
        {"states", &Batch::states},           {"actions", &Batch::actions},
        {"rewards", &Batch::rewards},         {"next_states", &Batch::next_states},
        {"previous", &Batch::previous},       {"current", &Batch::current},
        {"query_state", &Batch::query_state}, {"query_action", &Batch::query_action}};
    for (const auto& [name, member] : kFields) {
      const auto found = expected_.find(std::string("batch.") + name);
      if (found != expected_.end()) batch.*member = found->second;
    }
    return batch;
  }

  TemporaryFolder folder_;
  mutable std::map<std::string, at::Tensor> expected_;
};

double largest_error(const at::Tensor& found, const at::Tensor& expected) {
  return (found.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
}

/// Parameters without a gradient only decay here; torch leaves them as they are, and nothing uses them.
bool is_unused(const std::string& name) {
  return name.starts_with("compress_") || name.starts_with("pred_token_type");
}

TEST_P(CheckpointImport, ComputesAndContinuesAsInPython) {
  write(GetParam());
  const bool compressed = GetParam().ends_with("compressed");
  ImportRequest asked = request();
  asked.overrides = {"tf_dropout=0", "tf_attn_dropout=0"};
  if (compressed) asked.markers = "beside";
  ASSERT_EQ(import_checkpoint(asked), ExitCode::kDone);

  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(asked.out / "config.yaml", {}, notices);
  EXPECT_TRUE(config.evaluation.eval_terminal_observation);
  EXPECT_EQ(config.training.train_timesteps, 1000);
  const auto model = AlgorithmDistillation::create(config.model, config.model_shape(), /*seed=*/1);
  Optimizer optimizer(model->parameters().flat(), config.training);
  TrainingState state(*model, optimizer);
  state.restore(CheckpointStore::load(asked.out / "checkpoints" / "step-3"));
  EXPECT_EQ(state.progress.step, 3);
  EXPECT_EQ(optimizer.step_count().item<float>(), 3);

  const AlgorithmDistillation::Predictions found = model->predict(batch());
  EXPECT_LT(largest_error(found.actions, expected_.at("actions")), 2e-6);
  if (compressed) {
    EXPECT_LT(largest_error(found.token_types, expected_.at("token_types")), 2e-6);
    return;  // both embeddings of the source learn from the query: the next step is another one
  }
  const AlgorithmDistillation::Loss loss = model->loss(batch(), LossPositions::kLast, /*training=*/true);
  (loss.sum / static_cast<double>(loss.targets)).backward();
  std::vector<at::Tensor> gradients;
  at::Tensor gradient = at::zeros_like(model->parameters().flat());
  const std::vector<NamedTensor> views = model->parameters().views_of(gradient);
  const std::vector<at::Tensor> leaves = model->parameters().leaves();
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].grad().defined()) at::Tensor(views[i].tensor).copy_(leaves[i].grad());
  }
  const auto rate = expected_.find("rate");
  const LearningRateSchedule schedule(config.training.lr, config.training.num_warmup_steps,
                                      config.training.train_timesteps);
  if (rate == expected_.end()) {
    optimizer.set_learning_rate(config.training.lr);
  } else {
    EXPECT_NEAR(rate->second.item<double>(), schedule.rate_at(3), 1e-9);
    optimizer.set_learning_rate(schedule.rate_at(3));
  }
  optimizer.step(gradient);
  int64_t compared = 0;
  for (const auto& [name, parameter] : model->parameters().named()) {
    if (is_unused(name)) continue;
    // A project's network may have no such parameters at all.
    const bool of_project = GetParam().starts_with(kOfProject);
    if (of_project && !expected_.contains("after." + name)) continue;
    ASSERT_TRUE(expected_.contains("after." + name)) << name;
    ++compared;
    const at::Tensor error = (parameter.to(at::kDouble) - expected_.at("after." + name)).abs();
    // Without rotary positions a key's bias changes no softmax: its gradient is 0 but for rounding, which
    // AdamW scales up.
    if (name.ends_with("in_proj_bias") || name.ends_with("c_attn.bias")) error.chunk(3)[1].zero_();
    EXPECT_LT(error.max().item<double>(), 2e-6) << name;
  }
  const auto all = std::ranges::count_if(expected_, [](const auto& named) {
    return named.first.starts_with("after.") && !is_unused(named.first.substr(std::strlen("after.")));
  });
  EXPECT_EQ(compared, all) << "else a parameter of the source has another name here";
}

INSTANTIATE_TEST_SUITE_P(Variants, CheckpointImport,
                         ::testing::Values("pre_norm", "post_norm", "gpt2", "compressed", "project_post_norm",
                                           "project_compressed"),
                         [](const auto& tested) { return tested.param; });

using RefusedImport = CheckpointImport;

TEST_P(RefusedImport, WhatMeansSomethingElseIsNamed) {
  write(GetParam());
  EXPECT_THAT(refusal_of<ConfigError>(request()), AllOf(HasSubstr("--markers"), HasSubstr("replace")));
  ImportRequest replacing = request();
  replacing.markers = "replace";
  EXPECT_THAT(refusal_of<ConfigError>(replacing), HasSubstr("another network"));
  EXPECT_FALSE(fs::exists(replacing.out));

  ImportRequest asked = request();
  asked.markers = "beside";
  write_changed({{"layers", "file['config']['tf_n_layer'] = 3"},
                 {"groups", "file['optimizer']['param_groups'] *= 2"},
                 {"heads", "del file['optimizer'], file['config']['tf_n_head']"},
                 {"path", "file['config']['path'] = pathlib.PurePosixPath('a')"},
                 {"weights", "file = {'weights': file['model']}"},
                 {"conv", "file = {'model': {'conv.weight': torch.ones(2)}, 'config': {'tf_n_head': 1}}"}});
  const auto take = [&](const std::string& name) { asked.file = folder_.path() / (name + ".pt"); };
  take("layers");
  EXPECT_THAT(refusal_of<ConfigError>(asked), AllOf(HasSubstr("tf_n_layer is 3"), HasSubstr("shapes say 2")));
  take("groups");
  EXPECT_THAT(refusal_of<CheckpointError>(asked), HasSubstr("one group"));
  take("heads");
  EXPECT_THAT(refusal_of<ConfigError>(asked), HasSubstr("attention heads"));
  asked.overrides = {"tf_n_head=2"};
  EXPECT_EQ(import_checkpoint(asked), ExitCode::kDone);
  EXPECT_THAT(refusal_of<ConfigError>(asked), HasSubstr("holds a run already"));

  asked.out = folder_.path() / "other";
  take("path");
  EXPECT_THAT(refusal_of<CheckpointError>(asked), AllOf(HasSubstr("pathlib"), HasSubstr("at byte")));
  take("weights");
  EXPECT_THAT(refusal_of<CheckpointError>(asked), HasSubstr("'weights'"));
  take("conv");
  EXPECT_THAT(refusal_of<CheckpointError>(asked), HasSubstr("conv.weight"));
  const std::string bytes = read_file(asked.file);
  write_file_atomically(asked.file, bytes.substr(0, bytes.size() - 30));
  EXPECT_THAT(refusal_of<CheckpointError>(asked), HasSubstr("cut off"));
  EXPECT_FALSE(fs::exists(asked.out));
}

TEST_P(RefusedImport, TheConfigurationMayStandInTheFolderOfTheRun) {
  write(GetParam());
  write_changed(
      {{"bare",
        "import yaml\n"
        "settings = file.pop('config') | {'device': torch.device('cpu'), 'token_type_weight': 0.5}\n"
        "open(folder / 'config.yaml', 'w').write(yaml.dump(settings, indent=4))"},
       {"lone",
        "del file['config']\n"
        "(folder / 'a' / 'b').mkdir(parents=True)\n"
        "torch.save(file, folder / 'a' / 'b' / 'far.pt')"}});
  ImportRequest asked = request();
  asked.markers = "beside";
  ASSERT_EQ(import_checkpoint(asked), ExitCode::kDone);
  std::vector<std::string> notices;
  const RunConfig expected = RunConfig::load(asked.out / "config.yaml", {"token_type_weight=0.5"}, notices);

  asked.file = folder_.path() / "bare.pt";
  asked.out = folder_.path() / "elsewhere" / "imported";
  ASSERT_EQ(import_checkpoint(asked), ExitCode::kDone);
  const RunConfig config =
      RunConfig::load(asked.out / "config.yaml", {"runs_dir=" + (folder_.path() / "runs").string()}, notices);
  EXPECT_EQ(config.resolved_yaml(), expected.resolved_yaml());
  EXPECT_EQ(config.model.tf_dropout, 0.1);  // of the source's layers, whatever its configuration says

  asked.file = folder_.path() / "a" / "b" / "far.pt";
  asked.out = folder_.path() / "other";
  EXPECT_THAT(refusal_of<ConfigError>(asked),
              AllOf(HasSubstr("no config.yaml beside it"), HasSubstr("--config")));
}

INSTANTIATE_TEST_SUITE_P(Files, RefusedImport, ::testing::Values("compressed"),
                         [](const auto& tested) { return tested.param; });

/// A run with one checkpoint of random weights, and what becomes of it once it is exported and imported.
class ImportOfExport : public ::testing::Test {
 protected:
  void write_run(const std::string& network) {
    const fs::path yaml = folder_.path() / "config.yaml";
    write_file_atomically(yaml,
                          "env: darkroom\ntf_n_embd: 16\ntf_n_layer: 2\ntf_n_head: 2\nn_transit: 12\n"
                          "tf_dropout: 0.2\ntf_attn_dropout: 0\n" +
                              network);
    std::vector<std::string> notices;
    config_ = RunConfig::load(yaml, {}, notices);
    write_file_atomically(yaml, config_.resolved_yaml());
    const auto model = AlgorithmDistillation::create(config_.model, config_.model_shape(), /*seed=*/1);
    Snapshot snapshot;
    snapshot.step = 7;
    snapshot.model = model->parameters().named();
    snapshot.optimizer = {{"step", at::full({}, 7.0F)}};
    for (const std::string moment : {"exp_avg.", "exp_avg_sq."}) {
      for (const auto& [name, tensor] : snapshot.model)
        snapshot.optimizer.push_back({moment + name, at::zeros_like(tensor)});
    }
    snapshot.state = {{"configuration", config_.resolved_yaml()}};
    CheckpointStore(folder_.path() / "checkpoints", 2).save(snapshot);
    weights_ = read_safetensors(stored_weights()).tensors;
    ASSERT_EQ(export_checkpoint(folder_.path(), folder_.path() / "run.pt", {}), ExitCode::kDone);
    fs::copy_file(stored_weights(), folder_.path() / "run.safetensors");
  }
  fs::path stored_weights() const { return folder_.path() / "checkpoints" / "step-7" / "model.safetensors"; }

  ImportRequest request(const std::string& file, const std::string& run) const {
    ImportRequest request;
    request.file = folder_.path() / file;
    request.out = folder_.path() / run;
    request.markers = "beside";
    return request;
  }
  /// Names of the weights that are others than those of the run.
  std::vector<std::string> changed(const ImportRequest& request) const {
    EXPECT_EQ(import_checkpoint(request), ExitCode::kDone);
    std::map<std::string, at::Tensor> found;
    for (NamedTensor& named : CheckpointStore::load(request.out / "checkpoints" / "step-7").model)
      found[named.name] = named.tensor;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : weights_) {
      if (!at::equal(found.at(name), tensor)) names.push_back(name);
    }
    return names;
  }

  TemporaryFolder folder_;
  RunConfig config_;
  std::vector<NamedTensor> weights_;
};

TEST_F(ImportOfExport, CompressedContextIsTheNetworkThatWasExported) {
  write_run("use_compressed_context: true\ncompress_interval: 4\n");
  EXPECT_THAT(changed(request("run.pt", "of_pt")), ::testing::IsEmpty());
  EXPECT_THAT(changed(request("run.safetensors", "of_safetensors")), ::testing::IsEmpty());
  ImportRequest asked = request("run.pt", "asked");
  asked.query_type = "0";
  EXPECT_THAT(changed(asked), ::testing::ElementsAre("embed_query_state.weight"));
}

TEST_F(ImportOfExport, APostNormNetworkKeepsItsDropout) {
  write_run("transformer_block: post_norm\n");
  for (const std::string kind : {"pt", "safetensors"}) {
    EXPECT_THAT(changed(request("run." + kind, "of_" + kind)), ::testing::IsEmpty());
    std::vector<std::string> notices;
    const RunConfig config = RunConfig::load(folder_.path() / ("of_" + kind) / "config.yaml", {}, notices);
    EXPECT_EQ(config.model.tf_dropout, 0.2) << kind;
    EXPECT_EQ(config.model.tf_attn_dropout, 0) << kind;
  }
}

TEST_F(ImportOfExport, AConfigurationThatCannotBeReadIsNamed) {
  write_run("");
  ImportRequest asked = request("run.pt", "imported");
  const auto refusal = [&](const std::string& config) -> std::string {
    asked.config = folder_.path() / config;
    try {
      import_checkpoint(asked);
      return "none";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal("none.yaml"), HasSubstr("none.yaml: found no such file"));
  write_file_atomically(folder_.path() / "list.yaml", "- a\n");
  EXPECT_THAT(refusal("list.yaml"), HasSubstr("list.yaml:1: found the list [a]"));
}

TEST(ImportedNetwork, OneOverTasksOfAnySpaceIsRefusedByName) {
  for (const testing::SpaceVariant& variant : testing::space_variants()) {
    const auto model = AlgorithmDistillation::create(variant.options, variant.shape(), /*seed=*/1);
    try {
      settings_of_network(model->parameters().named(), "any.pt");
      FAIL() << variant.name;
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("any.pt: found a network over tasks of any space")) << variant.name;
    }
  }
}

}  // namespace
}  // namespace adtrain
