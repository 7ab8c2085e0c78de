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
#include "run/RunConfig.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"
#include "training/LearningRateSchedule.h"
#include "training/Optimizer.h"
#include "training/TrainingState.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

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

}  // namespace
}  // namespace adtrain
