#include <algorithm>
#include <filesystem>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "checkpoint/CheckpointStore.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A copy of a trained model in the folder `model`.
fs::path copied_model(const SmallRun& small) {
  const fs::path copy = small.folder() / "model";
  fs::copy(ADTRAIN_SOURCE_DIR "/models/darkroom", copy,
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  return copy;
}

fs::path only_checkpoint(const fs::path& run) {
  const CheckpointStore store(run / "checkpoints", 2);
  return store.path_of(store.steps().at(0));
}

json answer_of(const Finished& finished) {
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  return json::parse(finished.output);
}

TEST(Checkpoints, AreListed) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  const json list = answer_of(small.adtrain("checkpoint list model --json"));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].at("step"), CheckpointStore(run / "checkpoints", 2).steps().at(0));
  EXPECT_THAT(list[0].at("configuration").get<std::string>(), HasSubstr("darkroom"));
  fs::create_directory(run / "checkpoints" / "step-7");
  write_file(run / "checkpoints" / "step-7" / "manifest.json", "no manifest");
  const Finished finished = small.adtrain("checkpoint list model");
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_THAT(finished.output, AllOf(HasSubstr("step-7  UNUSABLE"), HasSubstr("damaged"), HasSubstr("UTC")));
}

TEST(Checkpoints, AreVerifiedByChecksumAndFiniteness) {
  const SmallRun small;
  const fs::path run = copied_model(small), checkpoint = only_checkpoint(run);
  EXPECT_EQ(small.adtrain("checkpoint verify model").exit_code, 0);
  Snapshot snapshot = CheckpointStore::load(checkpoint);

  snapshot.step = 1;
  snapshot.model.back().tensor = snapshot.model.back().tensor.clone();
  snapshot.model.back().tensor.flatten()[0] = std::numeric_limits<float>::infinity();
  CheckpointStore(small.folder() / "other", 2).save(snapshot);  // its checksums match
  const Finished infinite = small.adtrain("checkpoint verify other/step-1");
  EXPECT_EQ(infinite.exit_code, 5) << infinite.output;
  EXPECT_THAT(infinite.output, AllOf(HasSubstr("NaN or infinite"), HasSubstr(snapshot.model.back().name)));

  const fs::path file = checkpoint / "optimizer.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  const Finished damaged = small.adtrain("checkpoint verify model --json");
  EXPECT_EQ(damaged.exit_code, 5);
  EXPECT_EQ(json::parse(damaged.output).at(0).at("usable"), false);
  EXPECT_EQ(small.adtrain("checkpoint inspect model").exit_code, 5);
}

TEST(Checkpoints, AreInspected) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  const json report = answer_of(small.adtrain("checkpoint inspect model --json"));
  const Snapshot snapshot = CheckpointStore::load(only_checkpoint(run));
  EXPECT_EQ(report.at("step"), snapshot.step);
  ASSERT_EQ(report.at("model").size(), snapshot.model.size());
  for (size_t i = 0; i < snapshot.model.size(); ++i) {
    const json& shown = report["model"][i];
    const at::Tensor& tensor = snapshot.model[i].tensor;
    EXPECT_EQ(shown.at("name"), snapshot.model[i].name);
    EXPECT_EQ(shown.at("shape"), tensor.sizes().vec());
    EXPECT_NEAR(shown.at("mean").get<double>(), tensor.to(at::kDouble).mean().item<double>(), 1e-9);
  }
  const Finished text = small.adtrain("checkpoint inspect model");
  EXPECT_THAT(text.output,
              AllOf(HasSubstr("pred_action.weight"), HasSubstr("deviation"), HasSubstr("darkroom")));
}

TEST(Checkpoints, ANewerOneThatIsDamagedIsNamedWhereAnOlderOneIsTaken) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  const std::string older = only_checkpoint(run).filename().string(), newer = "step-1000000";
  fs::create_directory(run / "checkpoints" / newer);
  write_file(run / "checkpoints" / newer / "manifest.json", "no manifest");
  const auto names_both =
      AllOf(HasSubstr("warning: passed over a checkpoint"), HasSubstr(newer), HasSubstr(older));
  for (const char* const command : {"inspect model", "export model --out m.pt",
                                    "export model --out q.safetensors --set load_in_4bit=true"}) {
    const Finished finished = small.adtrain(std::string("checkpoint ") + command);
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    EXPECT_THAT(finished.output, names_both) << command;
  }
  const Finished report = small.shell("$adtrain checkpoint inspect model --json 2>/dev/null");
  EXPECT_THAT(json::parse(report.output).at("passed_over").at(0).get<std::string>(), HasSubstr(newer));
}

TEST(Checkpoints, AreReadByPythonWhenExported) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  const Finished exported = small.adtrain("checkpoint export model --out model.pt");
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  const Finished read = run_shell(
      quoted(ADTRAIN_PYTHON) + " " + quoted(ADTRAIN_SOURCE_DIR "/tests/interop/read_torch_export.py") + " " +
      quoted((small.folder() / "model.pt").string()) + " " + quoted(only_checkpoint(run).string()));
  EXPECT_EQ(read.exit_code, 0) << read.output;
  EXPECT_EQ(small.adtrain("checkpoint export model --out /proc/model.pt").exit_code, 3);
  EXPECT_EQ(small.adtrain("checkpoint export model --out model.pth").exit_code, 0);
}

TEST(Checkpoints, AreExportedToFilesWhoseNamesSayWhatTheyAre) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  const auto expect_refusal = [&](const std::string& out, const std::string& says) {
    const Finished refused = small.adtrain("checkpoint export model --out " + out);
    EXPECT_EQ(refused.exit_code, 2) << out << ": " << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(says));
  };
  expect_refusal("''", "missing --out; expected the file to write");
  expect_refusal("'' --set load_in_4bit=true", "missing --out; expected the file to write");
  expect_refusal("model.npz", "--out: found model.npz, and weights as they are; expected FILE.pt");
  expect_refusal("exported/", "--out: found exported, and weights as they are; expected FILE.pt");
  expect_refusal("model.pth --set load_in_4bit=true", "--out: found model.pth for quantised weights");
  EXPECT_FALSE(fs::exists(small.folder() / "model.npz"));
}

/// 4 bits have no code for NaN: its network would score as if nothing were wrong.
TEST(Checkpoints, ThoseThatAreNotFiniteAreNeitherExportedNorQuantised) {
  const SmallRun small;
  const fs::path run = copied_model(small);
  Snapshot snapshot = CheckpointStore::load(only_checkpoint(run));
  const std::string name = "transformer.blocks.0.attn.proj.weight";
  NamedTensor& weight = *std::ranges::find(snapshot.model, name, &NamedTensor::name);
  weight.tensor = weight.tensor.clone();
  weight.tensor.flatten()[5] = std::numeric_limits<float>::quiet_NaN();
  ++snapshot.step;
  CheckpointStore(run / "checkpoints", 2).save(snapshot);
  for (const char* const command : {"checkpoint export model --out m.pt",
                                    "checkpoint export model --out m.safetensors --set load_in_4bit=true",
                                    "evaluate model --set load_in_4bit=true"}) {
    const Finished refused = small.adtrain(command);
    EXPECT_EQ(refused.exit_code, 5) << command << ": " << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("values of '" + name + "' are NaN or infinite")) << command;
  }
  EXPECT_FALSE(fs::exists(small.folder() / "m.pt") || fs::exists(small.folder() / "m.safetensors"));
}

TEST(Checkpoints, OneWithoutItsManifestIsNamed) {
  const SmallRun small;
  const std::string checkpoint = only_checkpoint(copied_model(small)).filename().string();
  const fs::path folder = fs::path("model/checkpoints") / checkpoint;
  fs::remove(small.folder() / folder / "manifest.json");
  const Finished refused = small.adtrain("evaluate " + folder.string());
  EXPECT_EQ(refused.exit_code, 5) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr(folder.string() + " is not a complete checkpoint"),
                                    HasSubstr("manifest.json")));
}

TEST(Checkpoints, AnImportedOneIsEvaluatedAndTrainedOn) {
  const SmallRun small;
  const Finished written = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                     quoted(ADTRAIN_SOURCE_DIR "/tests/interop/write_torch_checkpoint.py") +
                                     " pre_norm " + quoted(small.folder().string()));
  ASSERT_EQ(written.exit_code, 0) << written.output;
  // The sizes of what is collected and how it is divided are the user's, as the source's histories are not
  // here.
  const Finished imported = small.adtrain(
      "checkpoint import trained.pt --set train_timesteps=5 --set num_warmup_steps=0 "
      "--set n_stream=1 --set n_steps=20 --set batch_size=20 --set n_epochs=1 "
      "--set total_source_timesteps=200 --set train_source_timesteps=200 --set train_n_stream=1 "
      "--set eval_episodes=2 --set num_workers=1 --set cpu_threads=1 --set device=cpu");
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  EXPECT_THAT(imported.output, AllOf(HasSubstr("adtrain evaluate runs/trained"),
                                     HasSubstr("runs/trained/config.yaml --resume")));

  const Finished evaluated = small.adtrain("evaluate runs/trained");
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_THAT(evaluated.output, HasSubstr("step 3 of runs/trained"));
  ASSERT_EQ(small.adtrain("collect runs/trained/config.yaml").exit_code, 0);
  const Finished trained = small.adtrain("runs/trained/config.yaml --resume");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_THAT(trained.output, HasSubstr("resuming after step 3"));
  EXPECT_TRUE(fs::exists(small.run("trained") / "checkpoints" / "step-5"));
}

TEST(Checkpoints, AnExportedNetworkOfChosenPiecesIsTheSameWhenImported) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished trained =
      small.adtrain("small.yaml --set transformer_block=xland --set tf_positions=rotary");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  ASSERT_EQ(small.adtrain("checkpoint export runs/small --out model.pt").exit_code, 0);
  const Finished imported = small.adtrain("checkpoint import model.pt --out runs/again");
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  EXPECT_THAT(imported.output, HasSubstr("xland network, width 16"));
  const std::string model = "/checkpoints/step-20/model.safetensors";
  EXPECT_EQ(small.read("runs/again" + model), small.read("runs/small" + model));
  EXPECT_THAT(small.read("runs/again/config.yaml"),
              AllOf(HasSubstr("tf_positions: rotary"), HasSubstr("tf_norm: layer")));
}

TEST(Checkpoints, AnExportedNetworkOfCompressedContextIsTheSameWhenImported) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished trained = small.adtrain(
      "small.yaml --set use_compressed_context=true --set compress_interval=16 --set n_transit=40");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  ASSERT_EQ(small.adtrain("checkpoint export runs/small --out model.pt").exit_code, 0);
  const Finished imported = small.adtrain("checkpoint import model.pt --out runs/again");
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  const std::string model = "/checkpoints/step-20/model.safetensors";
  EXPECT_EQ(small.read("runs/again" + model), small.read("runs/small" + model));
}

TEST(Checkpoints, WrongArgumentsAreAnswered) {
  const SmallRun small;
  EXPECT_EQ(small.adtrain("checkpoint --help").exit_code, 0);
  EXPECT_EQ(small.adtrain("checkpoint").exit_code, 2);
  EXPECT_EQ(small.adtrain("checkpoint export runs/none").exit_code, 2);
  EXPECT_EQ(small.adtrain("checkpoint list runs/none").exit_code, 5);
  const Finished misspelt = small.adtrain("checkpoint verfy runs/none");
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.output, HasSubstr("did you mean 'checkpoint verify'"));
}

}  // namespace
}  // namespace adtrain
