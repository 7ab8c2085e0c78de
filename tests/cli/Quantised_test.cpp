#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kLarge =
    "--set transformer_block=xland --set tf_n_layer=3 --set tf_n_embd=64 --set train_timesteps=4 --set "
    "num_warmup_steps=1 --set ckpt_interval=4";

/// runs/large, with enough layers for some to be quantised and some not.
void train_large(const SmallRun& run) {
  ASSERT_EQ(run.collect().exit_code, 0);
  const Finished trained = run.adtrain("small.yaml --set run_name=large " + kLarge);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
}

/// The same scores, byte for byte.
void expect_equal(const SmallRun& run, const std::string& found, const std::string& expected) {
  for (const std::string file : {"/scores.npy", "/scores.csv"})
    EXPECT_TRUE(run.read(found + file) == run.read(expected + file)) << found << file;
}

/// A run of this file with quantised weights scores as runs/large whose weights are quantised so when it is
/// loaded, byte for byte.
void expect_import(const SmallRun& run, const std::string& file, const std::string& form,
                   const std::string& settings) {
  SCOPED_TRACE(file);
  const std::string import = "checkpoint import " + file + " --config runs/large/config.yaml --out runs/" +
                             form + " ",
                    score =
                        " --set score_tasks=all --set max_samples=13 --set batch_size=2 --set output_dir=";
  const Finished wrong = run.adtrain(import + "--set load_in_4bit=true --set bnb_4bit_quant_type=fp4");
  EXPECT_EQ(wrong.exit_code, 2) << wrong.output;
  EXPECT_THAT(wrong.output, HasSubstr("is quantised as " + form + "; expected its keys, or none"));
  const Finished imported = run.adtrain(import);
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  EXPECT_THAT(imported.output, AllOf(HasSubstr("weights in " + form), Not(HasSubstr("--resume"))));
  const Finished found = run.adtrain("score runs/" + form + score + "found-" + form);
  EXPECT_EQ(found.exit_code, 0) << found.output;
  const Finished expected =
      run.adtrain("score runs/large" + score + "expected-" + form + " --set " + settings);
  EXPECT_EQ(expected.exit_code, 0) << expected.output;
  expect_equal(run, "found-" + form, "expected-" + form);
}

TEST(Quantised, ScoresAndEvaluatesARunOnOneDeviceOnSeveralAndOnRanks) {
  const SmallRun run;
  ASSERT_NO_FATAL_FAILURE(train_large(run));
  const std::string score = "score runs/large --set score_tasks=all --set max_samples=13 --set batch_size=2 ";
  const std::string nf4 =
      "--set quantization_config='{load_in_4bit: true, bnb_4bit_quant_type: nf4, bnb_4bit_use_double_quant: "
      "true, bnb_4bit_compute_dtype: torch.bfloat16, llm_int8_skip_modules: [blocks.1.mlp]}' ";

  const Finished exact = run.adtrain(score + "--set output_dir=exact");
  ASSERT_EQ(exact.exit_code, 0) << exact.output;
  const Finished whole = run.adtrain(score + nf4 + "--set output_dir=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("weights in nf4-double: 12 of 15 linear layers; "),
                                  HasSubstr("a network of this size is faster"), HasSubstr("precision"),
                                  HasSubstr("bf16")));
  EXPECT_FALSE(run.read("whole/scores.npy") == run.read("exact/scores.npy"));
  const json scored = json::parse(run.read("whole/summary.json"))["scored"];
  EXPECT_EQ(scored["quantisation"], "nf4-double");
  EXPECT_EQ(scored["llm_int8_skip_modules"], "blocks.1.mlp");
  EXPECT_NE(scored["checkpoint_digest"],
            json::parse(run.read("exact/summary.json"))["scored"]["checkpoint_digest"]);

  const Finished spilled = run.adtrain(
      score + nf4 +
      "--set output_dir=spilled --set device_map='{embeddings: 0, blocks: 1, blocks.2: cpu, head: cpu}'");
  EXPECT_EQ(spilled.exit_code, 0) << spilled.output;
  EXPECT_THAT(spilled.output, HasSubstr("3 stages, logical devices on the CPU"));
  expect_equal(run, "spilled", "whole");
  const Finished ranks = run.mpirun(2, score + nf4 + "--set output_dir=ranks");
  EXPECT_EQ(ranks.exit_code, 0) << ranks.output;
  expect_equal(run, "ranks", "whole");

  // A run in this form has the same weights, and every rank gets them.
  const Finished exported = run.adtrain("checkpoint export runs/large --out runs/large-nf4 " + nf4);
  EXPECT_EQ(exported.exit_code, 0) << exported.output;
  const Finished stored = run.mpirun(2,
                                     "score runs/large-nf4 --set score_tasks=all --set max_samples=13 --set "
                                     "batch_size=2 --set output_dir=stored");
  EXPECT_EQ(stored.exit_code, 0) << stored.output;
  expect_equal(run, "stored", "whole");
  EXPECT_EQ(json::parse(run.read("stored/summary.json"))["scored"]["checkpoint_digest"],
            scored["checkpoint_digest"]);
  const Finished verified = run.adtrain("checkpoint verify runs/large-nf4");
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
  const Finished other =
      run.adtrain("score runs/large-nf4 --set bnb_4bit_use_double_quant=false --set output_dir=other");
  EXPECT_EQ(other.exit_code, 5) << other.output;
  EXPECT_THAT(other.output, HasSubstr("is quantised as nf4-double, and the configuration asks for nf4"));
  const Finished file =
      run.adtrain("checkpoint export runs/large --out large.safetensors --set load_in_8bit=true");
  EXPECT_EQ(file.exit_code, 0) << file.output;
  EXPECT_THAT(run.read("large.safetensors"), HasSubstr("blocks.0.attention.qkv.SCB"));
  expect_import(run, "large.safetensors", "int8", "load_in_8bit=true");
  EXPECT_TRUE(std::filesystem::exists(run.run("int8") / "checkpoints" / "step-4")) << "the step is lost";
  std::string spoilt = run.read("large.safetensors");  // the last number of its header's first scales
  const std::string scales = "blocks.0.attention.out.SCB";
  const json header = json::parse(spoilt.substr(8, *reinterpret_cast<const uint64_t*>(spoilt.data())));
  const size_t begins = 8 + *reinterpret_cast<const uint64_t*>(spoilt.data()),
               end = begins + header.at(scales).at("data_offsets").at(1).get<size_t>();
  spoilt.replace(end - 4, 4, std::string("\0\0\xc0\x7f", 4));
  run.write("spoilt.safetensors", spoilt);
  const Finished infinite =
      run.adtrain("checkpoint import spoilt.safetensors --config runs/large/config.yaml --out runs/spoilt");
  EXPECT_EQ(infinite.exit_code, 5) << infinite.output;
  EXPECT_THAT(infinite.output, HasSubstr("spoilt.safetensors: 1 of 64 values of '" + scales + "' are NaN"));
  const Finished begun = run.adtrain("small.yaml --set run_name=begun --set init_from=runs/int8");
  EXPECT_EQ(begun.exit_code, 5) << begun.output;
  EXPECT_THAT(begun.output, HasSubstr("are quantised, and training begins with weights as they are"));
  const Finished resumed = run.adtrain("small.yaml --resume --set run_name=large-nf4 " + kLarge);
  EXPECT_EQ(resumed.exit_code, 5) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("--resume: the weights of runs/large-nf4 are quantised"));

  const Finished python = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                    quoted(ADTRAIN_SOURCE_DIR "/tests/checkpoint/write_quantised.py") + " " +
                                    quoted(run.run("large") / "checkpoints/latest/model.safetensors") + " " +
                                    quoted(run.folder() / "theirs.safetensors") + " 2>&1");
  if (python.exit_code != 77) {
    EXPECT_EQ(python.exit_code, 0) << python.output;
    expect_import(run, "theirs.safetensors", "nf4-double",
                  "load_in_4bit=true --set bnb_4bit_use_double_quant=true");
  }

  const Finished rows = run.adtrain(score + "--set load_in_8bit=true");
  EXPECT_EQ(rows.exit_code, 0) << rows.output;
  EXPECT_THAT(rows.output, HasSubstr("step-4-int8/scores.csv"));
  const Finished outliers = run.adtrain(score + "--set load_in_8bit=true --set llm_int8_threshold=6.0");
  EXPECT_EQ(outliers.exit_code, 0) << outliers.output;
  EXPECT_THAT(outliers.output, HasSubstr("step-4-int8-outliers-6/scores.csv"));

  const Finished played =
      run.adtrain("evaluate runs/large --set eval_episodes=2 --set eval_batch=3 --set load_in_4bit=true");
  EXPECT_EQ(played.exit_code, 0) << played.output;
  EXPECT_EQ(json::parse(run.read("runs/large/evaluation/test-step-4-1x2-nf4/summary.json"))["quantisation"],
            "nf4");
}

/// Which layers are quantised follows from what is stored, in device maps too, and other keys are refused.
TEST(Quantised, StoredWeightsSayWhichLayersAreQuantised) {
  const SmallRun run;
  ASSERT_NO_FATAL_FAILURE(train_large(run));
  const std::string skip = " --set llm_int8_skip_modules=", left = "blocks.0,blocks.1.mlp",
                    nf4 = " --set load_in_4bit=true" + skip + left;
  for (const std::string out : {"part.safetensors", "runs/part"}) {
    const Finished exported = run.adtrain("checkpoint export runs/large --out " + out + nf4);
    ASSERT_EQ(exported.exit_code, 0) << exported.output;
  }
  const std::string import = "checkpoint import part.safetensors --config runs/large/config.yaml --out runs/";
  const Finished imported = run.adtrain(import + "theirs");
  ASSERT_EQ(imported.exit_code, 0) << imported.output;
  EXPECT_THAT(imported.output,
              HasSubstr("llm_int8_skip_modules = " + left + ", which the file has as they are"));

  const std::string map = " --set device_map=sequential --set max_memory='{0: 10MB}'";
  const auto rows = AllOf(HasSubstr("blocks.0    0       84 352"), HasSubstr("blocks.1    0       28 160"),
                          HasSubstr("blocks.2    0       14 208"));
  const std::string few = " --set score_tasks=all --set max_samples=3 --set batch_size=2 --set output_dir=";
  int number = 0;
  for (const std::string& keys :
       {"large" + nf4, std::string("part"), "part" + skip + "null",
        "part" + skip + "'blocks.0.*,*.1.mlp,pred_action'", std::string("theirs")}) {
    const Finished scored = run.adtrain("score runs/" + keys + map + few + std::to_string(++number));
    EXPECT_EQ(scored.exit_code, 0) << keys << ": " << scored.output;
    EXPECT_THAT(scored.output, AllOf(HasSubstr("weights in nf4: 8 of 15 linear layers"), rows)) << keys;
  }
  for (const std::string name : {"part", "theirs"})
    EXPECT_THAT(run.adtrain("validate runs/" + name + "/config.yaml" + map).output, rows) << name;

  const auto expect_error = [&](const std::string& arguments, int code, const std::string& says) {
    const Finished refused = run.adtrain(arguments);
    EXPECT_EQ(refused.exit_code, code) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(says));
  };
  expect_error("score runs/part" + skip + "blocks.2" + few + "none", 5,
               "llm_int8_skip_modules: found 'blocks.2', and runs/part is quantised already, in all linear "
               "layers but heads and " +
                   left + "; expected the keys that it was exported with, here " + left);
  expect_error("score runs/part" + skip + "block.2" + few + "none", 2, "which fits no parameter");
  expect_error(import + "none" + skip + "blocks.2", 2,
               "llm_int8_skip_modules: found 'blocks.2', and part.safetensors is quantised in all linear "
               "layers but heads and " +
                   left + "; expected its keys, or none");
  const Finished whole = run.adtrain("checkpoint export runs/large --out runs/whole --set load_in_8bit=true");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  expect_error("score runs/whole" + skip + "blocks.0" + few + "none", 5,
               "in all linear layers but heads; expected the keys that it was exported with, here null");
}

TEST(Quantised, WhatCannotBeIsSaidWithItsPlace) {
  const SmallRun run;
  const auto expect_error = [&](const std::string& arguments, const std::vector<std::string>& says) {
    const Finished refused = run.adtrain(arguments);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    for (const std::string& text : says) EXPECT_THAT(refused.output, HasSubstr(text));
  };
  run.write("quantised.yaml", "include: small.yaml\nload_in_4bit: true\n");
  expect_error("quantised.yaml",
               {"quantised.yaml:2: load_in_4bit: found true, and quantised weights do not train",
                "adtrain score RUN --set load_in_4bit=true"});
  run.write("wrong.yaml",
            "include: small.yaml\nquantization_config:\n  load_in_4bit: true\n  bnb_4bit_quant_type: nf5\n"
            "  bnb_4bit_use_double_quants: true\n  llm_int8_has_fp16_weight: true\n");
  expect_error("validate wrong.yaml",
               {"wrong.yaml:4: bnb_4bit_quant_type: found 'nf5'; expected nf4 or fp4; did you mean nf4?",
                "wrong.yaml:5: quantization_config.bnb_4bit_use_double_quants: found an unknown key",
                "did you mean bnb_4bit_use_double_quant?",
                "llm_int8_has_fp16_weight: found 'true'; it keeps weights in 16 bits to train them"});
  run.write("both.yaml", "include: small.yaml\nload_in_4bit: true\nload_in_8bit: true\n");
  expect_error("validate both.yaml",
               {"both.yaml:3: load_in_8bit: found true beside load_in_4bit: true; expected one of them"});
  run.write("right.yaml", "include: small.yaml\nload_in_8bit: true\nbnb_4bit_use_double_quant: true\n");
  const Finished valid = run.adtrain("validate right.yaml --set device=cpu");
  EXPECT_EQ(valid.exit_code, 0) << valid.output;
  EXPECT_THAT(valid.output, AllOf(HasSubstr("weight-only products of quantised weights"),
                                  HasSubstr("bnb_4bit_use_double_quant has no effect"),
                                  HasSubstr("load_in_8bit is for adtrain score and adtrain evaluate"),
                                  Not(HasSubstr("vectorised"))));
  const Finished estimated = run.adtrain(
      "estimate right.yaml --set transformer_block=xland --set device_map=auto --set 'max_memory={0: 1GB, 1: "
      "1GB}'");
  EXPECT_EQ(estimated.exit_code, 0) << estimated.output;
  EXPECT_THAT(estimated.output, AllOf(HasSubstr("device map within max_memory"),
                                      HasSubstr("load_in_8bit is for scoring and evaluation")));
}

}  // namespace
}  // namespace adtrain
