#include <iterator>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "adtrain/version.h"
#include "base/Terminal.h"
#include "support/Patience.h"
#include "support/ThreadSanitizer.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Command, TheVersionIsTheSameInsideAndOutside) {
  const SmallRun small;
  EXPECT_THAT(
      small.adtrain("--version").output,
      AllOf(StartsWith("adtrain " + version() + " ("), ContainsRegex("commit [0-9a-f]{12}|no commit known"),
            HasSubstr("libtorch "), HasSubstr("NCCL "), HasSubstr("Open MPI"), HasSubstr("HDF5 ")));
}

TEST(Command, EveryCommandHelpsWithAnExample) {
  const SmallRun small;
  const Finished general = small.adtrain("--help");
  EXPECT_EQ(general.exit_code, 0);
  for (const std::string command :
       {"train", "collect", "evaluate", "score", "merge", "throughput", "sweep", "plot", "compare",
        "estimate", "find-batch-size", "launch", "test", "validate", "env"}) {
    EXPECT_THAT(general.output, HasSubstr("  " + command));
    const Finished help = small.adtrain(command + " --help");
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.output, AllOf(HasSubstr("examples:"), HasSubstr("adtrain " + command))) << command;
  }
}

/// The scripts that start a training ask `adtrain validate` for its folder.
TEST(Command, TheScriptsFindTheFolderOfARunThatNeedsAPlugin) {
  const SmallRun small;
  const std::string plugin = ADTRAIN_BINARY_DIR "/libsample_plugin.so";
  for (const std::string& option : {"--plugin " + plugin, "--plugin=" + plugin}) {
    const Finished found = small.shell(
        "set -euo pipefail\n"
        "say() { echo \"$*\"; }\n"
        "ADTRAIN=$adtrain\n"
        "source " +
        quoted(ADTRAIN_SOURCE_DIR "/launch/training.sh") +
        "\n"
        "find_training small.yaml --set run_name=line " +
        option + " --set env=sample_line\necho \"$run_folder: ${training[*]:1}\"");
    EXPECT_EQ(found.exit_code, 0) << found.output;
    EXPECT_THAT(found.output, HasSubstr("runs/line: small.yaml --set run_name=line " + option));
  }
}

/// What a command prints on a terminal of so many columns.
std::string on_a_terminal(const SmallRun& small, int columns, const std::string& arguments) {
  small.write("terminal.py",
              "import fcntl, os, pty, struct, sys, termios\n"
              "pid, terminal = pty.fork()\n"
              "if pid == 0:\n"
              "    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('4H', 24, int(sys.argv[1]), 0, 0))\n"
              "    os.execv(sys.argv[2], sys.argv[2:])\n"
              "try:\n"
              "    while part := os.read(terminal, 4096): os.write(1, part.replace(b'\\r', b''))\n"
              "except OSError: pass  # the program has ended\n");
  return run_shell(quoted(ADTRAIN_PYTHON) + " " + quoted((small.folder() / "terminal.py").string()) + " " +
                   std::to_string(columns) + " " ADTRAIN_BINARY_DIR "/adtrain " + arguments)
      .output;
}

TEST(Command, HelpFitsTheTerminalWithoutBreakingWords) {
  const SmallRun small;
  const auto words_of = [](const std::string& text) {
    std::istringstream words(text);
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  };
  for (const std::string command : {"train", "launch", "sweep"}) {
    const std::string narrow = on_a_terminal(small, 80, command + " --help");
    ASSERT_THAT(narrow, HasSubstr("examples:")) << command;
    EXPECT_EQ(words_of(narrow), words_of(on_a_terminal(small, 200, command + " --help")));
    std::istringstream lines(narrow.substr(0, narrow.find("\n  adtrain", narrow.find("examples:"))));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), 80) << line;
  }
}

TEST(Command, EnvReportsVersionsDevicesAndLauncher) {
  const SmallRun small;
  const auto report = nlohmann::json::parse(small.adtrain("env --json").output);
  for (const char* name : {"libtorch", "NCCL", "MPI", "CUDA runtime", "HDF5"}) {
    EXPECT_FALSE(report.at("versions").at(name).at("found").get<std::string>().empty()) << name;
  }
  EXPECT_TRUE(report.at("gpus").is_array());
  EXPECT_EQ(report.at("launcher").at("world size"), 1);
  EXPECT_THAT(small.adtrain("env").output, AllOf(HasSubstr("NCCL"), HasSubstr("launcher")));
}

TEST(Command, ValidatePrintsAConfigurationThatLoadsBack) {
  const SmallRun small;
  const Finished first = small.adtrain("validate small.yaml --set lr=0.5");
  ASSERT_EQ(first.exit_code, 0) << first.output;
  small.write("resolved.yaml", first.output);
  const Finished second = small.adtrain("validate resolved.yaml --json");
  ASSERT_EQ(second.exit_code, 0) << second.output;
  EXPECT_THAT(first.output,
              HasSubstr(nlohmann::json::parse(second.output).at("resolved").get<std::string>()));
}

TEST(Command, EstimateShowsPartsPrecisionsAndBatches) {
  const SmallRun small;
  const Finished text = small.adtrain("estimate small.yaml --gpus 1,4 --memory 24");
  ASSERT_EQ(text.exit_code, 0) << text.output;
  EXPECT_THAT(text.output, AllOf(HasSubstr("activations"), HasSubstr("bf16"), HasSubstr("24 GB")));

  const auto json = nlohmann::json::parse(
      small.adtrain("estimate small.yaml --set global_batch_size=null --memory 24 --json 2> said").output);
  EXPECT_THAT(small.read("said"), HasSubstr("notice: transformer_block: auto means pre_norm"));
  int64_t sum = 0;
  for (const auto& [part, bytes] : json.at("bytes").items()) sum += bytes.get<int64_t>();
  EXPECT_EQ(json.at("total_bytes"), sum);
  EXPECT_GT(json.at("largest_batch_by_precision_and_gigabytes").at("bf16").at("24"), 1000);

  const Finished map = small.adtrain(
      "estimate small.yaml --set device_map=balanced --set score_batch=4 --set max_memory='{0: 1MB, 1: "
      "1MB}'");
  EXPECT_EQ(map.exit_code, 0) << map.output;
  EXPECT_THAT(map.output, AllOf(HasSubstr("scoring and evaluation: device map within max_memory"),
                                HasSubstr("\n  embeddings  ")));
  const Finished table =
      small.adtrain("estimate small.yaml small.yaml --table --gpus 1,2 --set score_batch=4 2> said");
  EXPECT_EQ(table.exit_code, 0) << table.output;
  EXPECT_THAT(table.output,
              HasSubstr("| model | parameters | windows | type | weights | 1 GPU | 2 GPUs |\n"));
  EXPECT_THAT(small.read("said"), HasSubstr("notice: transformer_block: auto means pre_norm"));
  const Finished skipping = small.adtrain(
      "estimate small.yaml --table --set score_batch=4 --set llm_int8_skip_modules=transformer.blocks.0");
  EXPECT_EQ(skipping.exit_code, 0) << skipping.output;
  EXPECT_THAT(skipping.output, Not(HasSubstr("llm_int8_skip_modules has no effect")));
  EXPECT_EQ(small.adtrain("estimate small.yaml small.yaml").exit_code, 2);

  const Finished wrong = small.adtrain("estimate small.yaml --gpus 1,two");
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.output, AllOf(HasSubstr("--gpus"), HasSubstr("1,two")));
}

TEST(Command, ValidateWarnsOfWhatCannotFitAnyGpu) {
  const SmallRun small;
  const std::string huge = "validate small.yaml --set device=auto --set tf_n_embd=8192 --set tf_n_layer=80 ";
  EXPECT_THAT(small.adtrain(huge).output, HasSubstr("training does not fit an H200, by arithmetic"));
  EXPECT_THAT(small.adtrain("validate small.yaml --set device=auto").output,
              testing::Not(HasSubstr("does not fit")));
}

TEST(Command, AWrongConfigurationIsAJsonDocumentToo) {
  const SmallRun small;
  const auto expect_invalid = [&](const std::string& setting, int code, const std::string& words) {
    const Finished finished = small.adtrain("validate small.yaml --set " + setting + " --json 2>/dev/null");
    EXPECT_EQ(finished.exit_code, code);
    const auto document = nlohmann::json::parse(finished.output);
    EXPECT_EQ(document.at("valid"), false);
    EXPECT_THAT(document.at("error").get<std::string>(), HasSubstr(words));
  };
  expect_invalid("learning_rate=1", 2, "did you mean lr?");
  expect_invalid("n_transit=5000", 4, "a smaller n_transit");  // longer than the histories
}

TEST(Command, EnvUnderALauncherIsOneDocument) {
  const SmallRun small;
  const Finished finished = small.mpirun(2, "env --json");
  EXPECT_EQ(finished.exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(finished.output).at("launcher").at("world size"), 2) << finished.output;
}

TEST(Command, ASettingMayHoldCommas) {
  const SmallRun small;
  const Finished finished = small.adtrain("validate small.yaml --set run_name=a,b");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("runs/a,b"));
}

TEST(Command, ExplainKnowsTheKeysOfEverySection) {
  const SmallRun small;
  const auto reference = nlohmann::json::parse(small.adtrain("validate --explain --json").output);
  std::vector<std::string> keys;
  for (const auto& section : reference.at("sections")) {
    for (const auto& key : section.at("keys")) keys.push_back(key.at("name"));
  }
  EXPECT_THAT(keys, testing::IsSupersetOf({"run_name", "env", "n_stream", "traj_dir", "tf_n_embd", "lr",
                                           "eval_episodes", "bucket_megabytes"}));
}

TEST(Command, EveryExampleConfigurationIsValid) {
  const SmallRun small;
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ADTRAIN_SOURCE_DIR "/configs")) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".yaml") continue;
    if (path.find("/run/") == std::string::npos && path.find("quickstart") == std::string::npos) continue;
    const Finished finished = small.adtrain("validate " + quoted(path));
    const bool collected_elsewhere = path.ends_with("/run/xland.yaml");  // by a program of its own
    EXPECT_EQ(finished.exit_code, collected_elsewhere ? 4 : 0) << path << "\n" << finished.output;
    if (collected_elsewhere) {
      EXPECT_THAT(finished.output, HasSubstr("histories/xland.hdf5 does not exist"));
    }
    ++count;
  }
  EXPECT_GE(count, 13);
}

/// The second project's files for its guide's run, as they are: paths relative to the working directory,
/// Python's booleans, keys that mean nothing here, and a compressed configuration that yields no sample
/// there.
TEST(Command, ThePythonProjectsFilesLoadUnchanged) {
  const SmallRun small;
  small.write("config/env/darkroom.yaml",
              "env: darkroom\ngrid_size: 9\ndim_states: 2\ndim_actions: 1\nnum_actions: 5\n\nhorizon: 20\n"
              "env_split_seed: 0\ntrain_env_ratio: 0.9\nmax_reward: 20\n");
  small.write("config/algorithm/ppo_base.yaml", "alg: PPO\n");
  small.write(
      "config/algorithm/ppo_darkroom.yaml",
      "include: config/algorithm/ppo_base.yaml\n\nn_steps: 80\nbatch_size: 40\nn_epochs: 20\nalg_seed: 42\n"
      "total_source_timesteps: 100000\nn_stream: 100\nsource_lr: 0.0003\nn_process: 8\n");
  small.write("config/model/ad_base.yaml",
              "dynamics: False\ndynamics_strength: 1.0\nlabel_smoothing: 0.\nflash_attn: True\nbeta1: "
              "0.9\nbeta2: 0.99\n"
              "weight_decay: 0.01\nsummary_interval: 100\neval_interval: 1000\ngen_interval: "
              "10000\nckpt_interval: 1000\n"
              "train_n_stream: 100\n");
  small.write(
      "config/model/ad_dr.yaml",
      "include: config/model/ad_base.yaml\n\nmodel: AD\n\n# Transformer\ntf_n_embd: 64\ntf_n_layer: 4\n"
      "tf_n_head: 4\ntf_dropout: 0.1\ntf_attn_dropout: 0.1\ntf_n_inner: 128\nn_transit: 240\nlr: 0.0003\n"
      "num_warmup_steps: 1000\ntrain_batch_size: 512\ntest_batch_size: 2048\ntrain_source_timesteps: 1000\n"
      "train_timesteps: 50000\ngradient_accumulation_steps: 1\nnum_workers: 4\nuse_compressed_context: true\n"
      "compress_interval: 80\nmixed_precision: 'fp16'\nnum_workers: 4\n");
  small.write("guide.yaml",
              "include:\n  - config/env/darkroom.yaml\n  - config/algorithm/ppo_darkroom.yaml\n  - "
              "config/model/ad_dr.yaml\n");
  const Finished finished = small.adtrain("validate guide.yaml");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, AllOf(HasSubstr("use_compressed_context: true"), HasSubstr("n_transit: 240"),
                                     HasSubstr("alg-seed42.hdf5"), HasSubstr("mixed_precision: fp16")));
}

TEST(Command, ValidateSaysWhichKernelsARunTakesAndWhyNotFasterOnes) {
  const SmallRun small;
  const auto report = [&](const std::string& settings) {
    return nlohmann::json::parse(
               small.adtrain("validate small.yaml --json --set device=cpu" + settings).output)
        .at("kernels");
  };
  const auto on_cpu = report("");
  ASSERT_EQ(on_cpu.size(), 1U);
  EXPECT_EQ(on_cpu[0].at("precision"), "fp32");
  std::vector<std::string> names;
  for (const auto& part : on_cpu[0].at("parts")) names.push_back(part.at("part"));
  EXPECT_THAT(names, ::testing::ElementsAre("embedding", "norms", "products", "attention", "MLP", "loss",
                                            "optimizer", "rollout"));
  const std::string text =
      small
          .adtrain(
              "validate small.yaml --set device=auto --set mixed_precision=bf16 --set fused_kernels=off "
              "--set tf_attn_dropout=0.1")
          .output;
  EXPECT_THAT(text, AllOf(HasSubstr("fused_kernels is off"), HasSubstr("libtorch, by step and rank")));
  EXPECT_THAT(small.adtrain("env").output, HasSubstr("attention"));
}

TEST(Command, EvaluationWritesWhatItPromises) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  const Finished finished =
      small.adtrain("evaluate runs/small --json --set eval_repeats=2 --set bnb_4bit_quant_type=fp4 2> said");
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(small.read("said"), AllOf(HasSubstr("notice: bnb_4bit_quant_type has no effect"),
                                        HasSubstr("learning curve runs/small/evaluation/")));
  const auto summary = nlohmann::json::parse(finished.output);
  EXPECT_EQ(summary,
            nlohmann::json::parse(small.read("runs/small/evaluation/test-step-20-2x5/summary.json")));
  EXPECT_EQ(summary.at("mean").size(), 5U);
  EXPECT_EQ(summary.at("std").size(), 5U);
  EXPECT_GT(summary.at("oracle").get<double>(), summary.at("random_floor").get<double>());
  EXPECT_EQ(summary.at("checkpoint_step"), 20);
  for (const char* name : {"reward_episode.npy", "reward_episode_repeats.npy", "reward_episode.csv",
                           "learning_curve.svg", "learning_curve.png"}) {
    EXPECT_TRUE(std::filesystem::exists(small.run() / "evaluation" / "latest" / name)) << name;
  }
  for (const char* name :
       {"config.yaml", "loss_curve.svg", "loss_curve.png", "checkpoints/latest/manifest.json"}) {
    EXPECT_TRUE(std::filesystem::exists(small.run() / name)) << name;
  }
  // One checkpoint by its folder, on the other side of the split.
  const Finished older =
      small.adtrain("evaluate runs/small/checkpoints/step-10 --json --set eval_tasks=train 2>/dev/null");
  ASSERT_EQ(older.exit_code, 0) << older.output;
  EXPECT_EQ(nlohmann::json::parse(older.output).at("checkpoint_step"), 10);
  EXPECT_EQ(nlohmann::json::parse(older.output).at("tasks").size(), 20U);
  EXPECT_TRUE(std::filesystem::exists(small.run() / "evaluation" / "train-step-10" / "summary.json"));
}

TEST(Command, EvaluationsStandSideBySide) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  ASSERT_EQ(small.adtrain("evaluate runs/small").exit_code, 0);
  const std::string first = small.read("runs/small/evaluation/test-step-20/summary.json");
  const auto evaluated_into = [&](const std::string& settings) {
    const Finished finished = small.adtrain("evaluate runs/small" + settings);
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    const std::string folder = "runs/small/evaluation/";
    const size_t begin = finished.output.rfind(folder) + folder.size();
    std::string name = finished.output.substr(begin, finished.output.find("/summary.json") - begin);
    EXPECT_EQ(std::filesystem::read_symlink(small.run() / "evaluation" / "latest"), name);
    return name;
  };
  EXPECT_EQ(evaluated_into(" --set eval_tasks=train"), "train-step-20");
  EXPECT_EQ(evaluated_into(" --set eval_repeats=2"), "test-step-20-2x5");
  EXPECT_EQ(evaluated_into(" --set eval_seed=3"), "test-step-20-seed-3");
  EXPECT_EQ(evaluated_into(" --set eval_terminal_observation=true"), "test-step-20-1x5");
  EXPECT_EQ(evaluated_into(" --set eval_terminal_observation=true"), "test-step-20-1x5")
      << "its own, once more";
  EXPECT_EQ(evaluated_into(" --set n_transit=12"), "test-step-20-window-12");
  EXPECT_EQ(nlohmann::json::parse(small.read("runs/small/evaluation/latest/summary.json"))["n_transit"], 12);
  EXPECT_EQ(evaluated_into(" --set load_in_4bit=true"), "test-step-20-nf4");
  EXPECT_EQ(evaluated_into(" --set load_in_4bit=true --set llm_int8_skip_modules=[transformer.blocks.0]"),
            "test-step-20-1x5-nf4");
  EXPECT_EQ(evaluated_into(" --set load_in_4bit=true --set bnb_4bit_compute_dtype=bf16"),
            "test-step-20-1x5-nf4-2");
  EXPECT_EQ(evaluated_into(" --set load_in_4bit=true"), "test-step-20-nf4");
  EXPECT_EQ(evaluated_into(""), "test-step-20");
  EXPECT_EQ(small.read("runs/small/evaluation/test-step-20/summary.json"), first);
  EXPECT_FALSE(std::filesystem::exists(small.run() / "evaluation" / "summary.json"));
}

TEST(Command, AnEvaluationThatFailsOrStopsSaysSoInItsOwnFolder) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  ASSERT_EQ(small.adtrain("small.yaml").exit_code, 0);
  ASSERT_EQ(small.adtrain("evaluate runs/small").exit_code, 0);
  const std::string summary = small.read("runs/small/evaluation/latest/summary.json");
  const std::string longer = "evaluate runs/small --set eval_episodes=100000";
  const auto stopped_at_work = [&](const std::string& launcher) {
    small.write("rank.sh", "echo $$ > pid; exec " ADTRAIN_BINARY_DIR "/adtrain " + longer + "\n");
    // It listens for signals before it says where the results will be.
    return run_shell("cd " + quoted(small.folder().string()) +
                     " && export OMP_NUM_THREADS=1; rm -f log pid; { timeout " +
                     std::to_string(120 * kPatience) + " " + launcher +
                     " bash rank.sh > log 2>&1 & }; until grep -q results log; do sleep 0.1; done; "
                     "kill $(cat pid); wait $!; status=$?; cat log; exit $status");
  };
  const Finished by_torchrun =
      stopped_at_work(std::string(ADTRAIN_TORCHRUN) + " --no-python --standalone --nproc-per-node 1");
  EXPECT_EQ(by_torchrun.exit_code, 0) << by_torchrun.output;
  EXPECT_THAT(by_torchrun.output, HasSubstr("nothing was written"));
  const Finished alone = stopped_at_work("");
  EXPECT_EQ(alone.exit_code, 75) << alone.output;
  const auto own = small.run() / "evaluation" / "test-step-20-1x100000";
  EXPECT_TRUE(std::filesystem::exists(own / "requeue"));
  EXPECT_FALSE(std::filesystem::exists(small.run() / "requeue"));

  // Weights that one rank of two cannot read.
  write_file(small.run() / "checkpoints" / "step-20" / "model.safetensors", "damaged");
  write_file(small.run() / "checkpoints" / "step-10" / "model.safetensors", "damaged");
  EXPECT_EQ(small.mpirun(2, longer).exit_code, 5);
  EXPECT_THAT(read_file(own / "failure.txt"),
              AllOf(HasSubstr("start the same command again"), Not(HasSubstr("--resume"))));
  EXPECT_FALSE(std::filesystem::exists(small.run() / "failure.txt"));
  EXPECT_FALSE(std::filesystem::exists(small.run() / "evaluation" / "test-step-20" / "failure.txt"));
  EXPECT_EQ(small.read("runs/small/evaluation/latest/summary.json"), summary) << "the link stayed";
}

TEST(Command, EveryModelVariantTrainsAndEvaluates) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  for (const std::string variant :
       {"transformer_block=pre_norm", "transformer_block=post_norm", "model=GPT2",
        "transformer_block=xland --set return_interval=10",
        "use_compressed_context=true --set compress_interval=16 --set n_transit=40"}) {
    for (const std::string positions : {"last", "all"}) {
      const Finished trained =
          small.adtrain("small.yaml --overwrite --set loss_positions=" + positions + " --set " + variant);
      EXPECT_EQ(trained.exit_code, 0) << variant << "\n" << trained.output;
    }
    const Finished evaluated = small.adtrain("evaluate runs/small");
    EXPECT_EQ(evaluated.exit_code, 0) << variant << "\n" << evaluated.output;
  }
  const Finished shorter = small.adtrain("evaluate runs/small --json --set compress_interval=12 2>/dev/null");
  EXPECT_EQ(shorter.exit_code, 0) << shorter.output;
  const auto summary = nlohmann::json::parse(shorter.output);
  EXPECT_EQ(summary.at("compress_interval"), 12);
  EXPECT_EQ(summary, nlohmann::json::parse(small.read("runs/small/evaluation/test-step-20-1x5/summary.json")))
      << "the evaluation with the run's own regions is still there";
}

TEST(Command, CollectingAsJsonSaysTheRestOnStandardError) {
  const SmallRun small;
  ASSERT_EQ(small.collect().exit_code, 0);
  const Finished kept = small.adtrain("collect small.yaml --json 2> said");
  EXPECT_EQ(kept.exit_code, 0);
  EXPECT_EQ(kept.output, "");
  EXPECT_THAT(small.read("said"), AllOf(HasSubstr("notice: transformer_block: auto means pre_norm"),
                                        HasSubstr("exists already and is kept")));
}

TEST(Command, AStoppedCollectionContinues) {
  const SmallRun small;
  const std::string collect = "collect small.yaml --set n_process=1 --set total_source_timesteps=" +
                              std::string(kThreadSanitizer ? "60000" : "150000");
  // It listens for signals before it makes this file, however slow the machine is.
  const Finished stopped = run_shell(
      kAwait + ("cd " + quoted(small.folder().string())) + " && { " ADTRAIN_BINARY_DIR "/adtrain " + collect +
      " & } && "
      "await eval '[ -e histories/*.partial/settings.json ]'; kill $!; wait $!");
  EXPECT_EQ(stopped.exit_code, 75) << stopped.output;
  EXPECT_THAT(stopped.output, HasSubstr("continue"));
  EXPECT_FALSE(std::filesystem::exists(small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5"));
  const Finished continued = small.adtrain(collect);
  EXPECT_EQ(continued.exit_code, 0) << continued.output;
  EXPECT_THAT(continued.output, HasSubstr("continu"));
  EXPECT_TRUE(std::filesystem::exists(small.folder() / "histories" / "history_darkroom_PPO_alg-seed1.hdf5"));
}

}  // namespace
}  // namespace adtrain
