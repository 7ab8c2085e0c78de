#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "SmallRun.h"

namespace adtrain {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// The same scores or returns, byte for byte, and the same said of them.
void expect_equal(const SmallRun& run, const std::string& found, const std::string& expected,
                  const std::vector<std::string>& files) {
  for (const std::string& file : files)
    EXPECT_TRUE(run.read(found + file) == run.read(expected + file)) << found << file;
  json summaries[] = {json::parse(run.read(found + "/summary.json")),
                      json::parse(run.read(expected + "/summary.json"))};
  for (json& summary : summaries) {
    summary.erase("seconds");
    summary.erase("samples_per_second");
  }
  EXPECT_EQ(summaries[0], summaries[1]);
}

/// Logical devices, a spill to the CPU, and ranks that each have a map give the bytes of the whole network.
TEST(DeviceMaps, ScoresAndReturnsAreThoseOfTheWholeNetwork) {
  const SmallRun run;
  ASSERT_EQ(run.collect().exit_code, 0);
  const Finished trained = run.adtrain(
      "small.yaml --set run_name=spread --set transformer_block=xland --set tf_n_layer=4 --set "
      "train_timesteps=4 --set num_warmup_steps=1 "
      "--set ckpt_interval=4");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;

  const std::string score =
      "score runs/spread --set score_tasks=all --set max_samples=13 --set batch_size=2 ";
  const Finished whole = run.adtrain(score + "--set output_dir=whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const Finished spilled = run.adtrain(score +
                                       "--set output_dir=spilled --set device_map='{embeddings: 0, blocks: "
                                       "0, blocks.2: 1, blocks.3: cpu, head: "
                                       "cpu}' --set max_memory='{0: 1GB, 1: 1GiB, cpu: 1GB}'");
  EXPECT_EQ(spilled.exit_code, 0) << spilled.output;
  EXPECT_THAT(
      spilled.output,
      AllOf(HasSubstr("blocks.0 … blocks.1  0"), HasSubstr("blocks.3             cpu"),
            HasSubstr("3 stages, logical devices on the CPU"),
            HasSubstr("comes to device 1 for each use, while it computes"),
            HasSubstr("device 0 alone holds the whole network: without device_map it would be faster")));
  expect_equal(run, "spilled", "whole", {"/scores.npy", "/scores.csv"});
  const std::string map = " --set device_map='{embeddings: 0, blocks: 1, head: 1}'";
  const Finished ranks = run.mpirun(2, score + "--set output_dir=ranks" + map);
  EXPECT_EQ(ranks.exit_code, 0) << ranks.output;
  expect_equal(run, "ranks", "whole", {"/scores.npy", "/scores.csv"});
  const Finished torchrun = run.torchrun(3, score + "--set output_dir=torchrun" + map);
  EXPECT_EQ(torchrun.exit_code, 0) << torchrun.output;
  EXPECT_THAT(torchrun.output, HasSubstr("2 stages, logical devices on the CPU"));
  expect_equal(run, "torchrun", "whole", {"/scores.npy", "/scores.csv"});

  const std::string evaluate = "$adtrain evaluate runs/spread --set eval_episodes=2 --set eval_batch=3 ";
  const Finished played = run.shell(evaluate + "&& mv runs/spread/evaluation whole-evaluation && " +
                                    evaluate + "--set device_map='{embeddings: 0, blocks: 1, head: 2}'");
  EXPECT_EQ(played.exit_code, 0) << played.output;
  EXPECT_THAT(played.output, HasSubstr("3 stages, logical devices"));
  expect_equal(run, "runs/spread/evaluation/latest", "whole-evaluation/latest", {"/reward_episode.npy"});

  const auto expect_error = [&](const std::string& more, const std::string& says) {
    const Finished refused = run.adtrain(score + "--set output_dir=none " + more);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr(says));
  };
  expect_error("--set device_map=sequential --set max_memory='{0: 10KB}'", "found no room");
  expect_error("--set device_map=sequentialy", "did you mean sequential?");
  expect_error("--set device_map='{embeddings: 0, blocks: 1}'", "found no device for pred_action");
}

/// Longer than the window of 16 steps: rows of the first network slide, those of the second one are then
/// shown as a whole.
TEST(DeviceMaps, ReturnsOfRollingContextsAreThoseOfTheWholeNetwork) {
  const SmallRun run;
  ASSERT_EQ(run.collect().exit_code, 0);
  for (const std::string block : {"xland", "post_norm"}) {
    SCOPED_TRACE(block);
    const Finished trained =
        run.adtrain("small.yaml --set run_name=" + block +
                    " --set tf_n_layer=4 --set train_timesteps=2 --set num_warmup_steps=1 "
                    "--set ckpt_interval=2 --set transformer_block=" +
                    block);
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    const std::string folder = "runs/" + block + "/evaluation";
    const std::string evaluate = "$adtrain evaluate runs/" + block +
                                 " --set eval_context=rolling --set eval_episodes=5 --set eval_batch=3 ";
    const Finished whole = run.shell(evaluate + "&& mv " + folder + " whole-" + block);
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    const auto expect_the_same = [&](const Finished& played, const std::string& says) {
      EXPECT_EQ(played.exit_code, 0) << played.output;
      EXPECT_THAT(played.output, AllOf(HasSubstr(says), HasSubstr("keys and values kept")));
      expect_equal(run, folder + "/latest", "whole-" + block + "/latest", {"/reward_episode.npy"});
    };
    expect_the_same(run.shell(evaluate + "--set device_map='{embeddings: 0, blocks: 1, head: 2}'"),
                    "6.0 KiB of keys and values of 3 rows for each block, where it is computed");
    expect_the_same(run.shell(evaluate + "--set device_map='{\"\": 0, blocks.2: cpu, blocks.3: 1}'"),
                    "comes to device 1 for each use");
    expect_the_same(run.shell(evaluate + "--set device_map=auto --set max_memory='{0: 1GB, 1: 1GB}'"),
                    "2 stages");
  }
  // 64 trials would keep 128 KiB for each block; an automatic batch is halved until they fit.
  const std::string limits =
      " --set eval_context=rolling --set eval_episodes=2 --set device_map=sequential "
      "--set max_memory='{0: 150KB}' --set eval_batch=";
  const Finished refused = run.adtrain("evaluate runs/xland" + limits + "64");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.output, AllOf(HasSubstr("keys and values, found no room"), HasSubstr("eval_batch")));
  const Finished halved = run.adtrain("evaluate runs/xland" + limits + "auto_batch_size");
  EXPECT_EQ(halved.exit_code, 0) << halved.output;
}

TEST(DeviceMaps, RegionsOfCompressedContextEndAsInTheWholeNetwork) {
  const SmallRun run;
  ASSERT_EQ(run.collect().exit_code, 0);
  const Finished trained = run.adtrain(
      "small.yaml --set run_name=regions --set use_compressed_context=true --set compress_interval=6 --set "
      "tf_n_layer=3 --set train_timesteps=4 --set num_warmup_steps=1 --set ckpt_interval=4");
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string map = "--set device_map='{embeddings: 0, blocks: 1, blocks.2: cpu, head: 0}' ";
  const std::string score =
      "$adtrain score runs/regions --set score_tasks=all --set max_samples=13 --set batch_size=2 --set "
      "output_dir=";
  const Finished scored = run.shell(score + "whole && " + score + "spread " + map);
  ASSERT_EQ(scored.exit_code, 0) << scored.output;
  expect_equal(run, "spread", "whole", {"/scores.npy", "/scores.csv"});
  const std::string evaluate = "$adtrain evaluate runs/regions --set eval_episodes=4 --set eval_batch=3 ";
  const Finished played =
      run.shell(evaluate + "&& mv runs/regions/evaluation whole-evaluation && " + evaluate + map);
  EXPECT_EQ(played.exit_code, 0) << played.output;
  EXPECT_THAT(played.output, HasSubstr("4 stages, logical devices"));
  expect_equal(run, "runs/regions/evaluation/latest", "whole-evaluation/latest", {"/reward_episode.npy"});
}

}  // namespace
}  // namespace adtrain
