#include "collection/Collector.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "base/File.h"
#include "collection/CollectionSettings.h"
#include "collection/Ppo.h"
#include "data/HistoryFile.h"
#include "data/HistorySet.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::HasSubstr;

/// Nine tasks that take a moment each.
EnvironmentOptions tiny_room() {
  EnvironmentOptions options;
  options.grid_size = 3;
  options.horizon = 8;
  return options;
}

CollectionOptions tiny_collection(int64_t threads) {
  CollectionOptions options;
  options.n_stream = 10;
  options.total_source_timesteps = 8'000;
  options.source_lr = 1e-3;
  options.n_epochs = 10;
  options.n_process = threads;
  options.alg_seed = 42;
  options.write_compress_markers = RolloutMarkers::kYes;
  return options;
}

std::string collected(const std::filesystem::path& file, int64_t threads) {
  EXPECT_TRUE(Collector(tiny_room(), tiny_collection(threads)).run(file));
  return read_file(file);
}

TEST(Collector, WritesTheHistoriesOfAllTasks) {
  const TemporaryFolder folder;
  std::vector<CollectionProgress> told;
  std::vector<std::thread::id> threads;
  CollectionListener listener;
  listener.progress = [&](const CollectionProgress& progress) {
    told.push_back(progress);
    threads.push_back(std::this_thread::get_id());
  };
  const std::filesystem::path path = folder.path() / tiny_collection(2).file_name(tiny_room());
  ASSERT_TRUE(Collector(tiny_room(), tiny_collection(2)).run(path, listener));
  ASSERT_EQ(path.filename(), "history_darkroom_PPO_alg-seed42.hdf5");

  const HistoryFile file(path);
  EXPECT_EQ(file.tasks().text(), "0-8");
  EXPECT_EQ(file.steps(), 800);
  EXPECT_EQ(file.streams(), 10);
  double returns = 0;
  for (int64_t task = 0; task < 9; ++task) {
    const History history = file.read(task, 800, 10, {.grid_size = 3, .num_actions = 5});
    EXPECT_EQ(history.compress_markers.size(), 8000);
    returns += history.final_return() / 9;
  }
  ASSERT_EQ(told.size(), 9);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(told[i].tasks_done, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(told[i].tasks, 9);
    EXPECT_EQ(threads[i], std::this_thread::get_id());
  }
  EXPECT_NEAR(told.back().mean_final_return, returns, 1e-9);
  EXPECT_EQ(told.back().seconds_left, 0);
  EXPECT_GT(returns, 5);  // of at most 7.2; random play earns 1.0
}

TEST(Collector, WritesTheSameHistoriesOfSomeTasks) {
  const TemporaryFolder folder;
  collected(folder.path() / "all.hdf5", 2);
  const TaskOptions some{.tasks = "2,7-8", .train_tasks = {}};
  const Collector collector(tiny_room(), tiny_collection(2), CollectionDevice::kCpu, some);
  CollectionProgress last{};
  CollectionListener listener;
  listener.progress = [&last](const CollectionProgress& progress) { last = progress; };
  ASSERT_TRUE(collector.run(folder.path() / "some.hdf5", listener));
  EXPECT_EQ(last.tasks_done, 3);
  EXPECT_EQ(last.tasks, 3);
  const HistoryFile all(folder.path() / "all.hdf5"), file(folder.path() / "some.hdf5");
  ASSERT_EQ(file.tasks().text(), "2,7-8");
  const HistoryBounds bounds{.grid_size = 3, .num_actions = 5};
  for (const int64_t task : file.tasks().numbers()) {
    EXPECT_EQ(file.read(task, 800, 10, bounds).actions, all.read(task, 800, 10, bounds).actions);
  }
  EXPECT_EQ(collector.file_bytes(), Collector(tiny_room(), tiny_collection(2)).file_bytes() / 3);
}

TEST(Collector, TheNumberOfThreadsChangesNothing) {
  const TemporaryFolder folder;
  EXPECT_EQ(collected(folder.path() / "one.hdf5", 1), collected(folder.path() / "three.hdf5", 3));
}

TEST(Collector, ContinuesAfterAStopToTheSameFile) {
  const TemporaryFolder folder;
  const std::string expected = collected(folder.path() / "whole.hdf5", 1);

  const std::filesystem::path path = folder.path() / "stopped.hdf5";
  std::atomic<bool> enough = false;
  int64_t done = 0;
  CollectionListener listener;
  listener.progress = [&](const CollectionProgress& progress) {
    done = progress.tasks_done;
    enough = done >= 3;
  };
  listener.stop = [&enough] { return enough.load(); };
  EXPECT_FALSE(Collector(tiny_room(), tiny_collection(2)).run(path, listener));
  EXPECT_GE(done, 3);
  EXPECT_LT(done, 9);
  EXPECT_FALSE(std::filesystem::exists(path));

  const int64_t done_before = done;
  std::vector<int64_t> told;
  std::vector<std::string> noticed;
  listener.stop = {};
  listener.progress = [&told](const CollectionProgress& progress) { told.push_back(progress.tasks_done); };
  listener.notice = [&noticed](const std::string& sentence) { noticed.push_back(sentence); };
  EXPECT_TRUE(Collector(tiny_room(), tiny_collection(2)).run(path, listener));
  EXPECT_EQ(told.front(), done_before + 1) << "finished tasks are not learnt again";
  EXPECT_THAT(noticed, testing::ElementsAre(HasSubstr("is that of the others alone")));
  EXPECT_EQ(read_file(path), expected);
}

TEST(Collector, RefusesToMixSettingsOrToOverwrite) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "history.hdf5";
  CollectionListener stop_at_once;
  stop_at_once.stop = [] { return true; };
  EXPECT_FALSE(Collector(tiny_room(), tiny_collection(1)).run(path, stop_at_once));
  CollectionOptions other = tiny_collection(1);
  other.n_epochs = 3;
  try {
    Collector(tiny_room(), other).run(path);
    FAIL() << "expected a DataError";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("n_epochs was 10 and is 3"));
  }
  collected(path, 2);
  EXPECT_THROW(Collector(tiny_room(), tiny_collection(1)).run(path), DataError);
}

TEST(Collector, ReplacesAFileOnlyByACompleteOne) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "history.hdf5";
  const std::string former = collected(path, 2);
  CollectionOptions other = tiny_collection(2);
  other.n_epochs = 3;
  CollectionListener stop_after_one;
  int64_t done = 0;
  stop_after_one.progress = [&done](const CollectionProgress& progress) { done = progress.tasks_done; };
  stop_after_one.stop = [&done] { return done > 0; };
  EXPECT_FALSE(Collector(tiny_room(), other).run(path, stop_after_one, ExistingHistories::kReplace));
  EXPECT_EQ(read_file(path), former);
  std::vector<int64_t> told;
  CollectionListener listener;
  listener.progress = [&told](const CollectionProgress& progress) { told.push_back(progress.tasks_done); };
  EXPECT_TRUE(Collector(tiny_room(), other).run(path, listener, ExistingHistories::kReplace));
  EXPECT_EQ(told.front(), done + 1) << "finished tasks are not learnt again";
  EXPECT_NE(read_file(path), former);
}

TEST(Collector, LearnsDamagedTasksAgainAndSaysSo) {
  const TemporaryFolder folder;
  const std::string expected = collected(folder.path() / "whole.hdf5", 1);
  const std::filesystem::path path = folder.path() / "history.hdf5", part = path.string() + ".partial/0.hdf5";
  CollectionListener listener;
  listener.stop = [&part] { return std::filesystem::exists(part); };
  EXPECT_FALSE(Collector(tiny_room(), tiny_collection(1)).run(path, listener));
  std::string bytes = read_file(part);
  bytes[24] = '\1';
  write_file(part, bytes);
  std::vector<std::string> reasons;
  listener.stop = {};
  listener.damage = [&reasons](const std::string& reason) { reasons.push_back(reason); };
  EXPECT_TRUE(Collector(tiny_room(), tiny_collection(1)).run(path, listener));
  EXPECT_THAT(reasons, testing::ElementsAre(HasSubstr("0.hdf5")));
  EXPECT_EQ(read_file(path), expected);
}

TEST(CollectionSettings, AllAreKnownToReadersOfFiles) {
  CollectionOptions options = tiny_collection(1);
  options.source_policies = 2;
  options.kept_streams = 2;
  options.history_compression = 1;
  options.optimal_actions = true;
  WorkerOptions workers;
  workers.env_worker = "lessons:make_names";
  workers.env_group = "lessons";
  workers.env_random_episodes = 3;
  const std::set<std::string> of_the_file = {"history_compression", "write_compress_markers",
                                             "optimal_actions", "env_random_episodes"};
  for (const HistorySettings& settings :
       {collection_settings(tiny_room(), options), own_collection_settings(tiny_room(), options, workers)}) {
    for (const auto& [name, value] : settings)
      EXPECT_NE(determines_the_values(name), of_the_file.contains(name)) << name;
  }
  EXPECT_FALSE(determines_the_values("author"));
}

TEST(Collector, TheFileTellsHowItWasCollected) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "history.hdf5";
  collected(path, 2);
  const HistorySettings expected = collection_settings(tiny_room(), tiny_collection(1));
  HistorySettings found = HistoryFile(path).settings();
  for (const auto& [name, value] : expected) EXPECT_EQ(found[name], value) << name;
  EXPECT_EQ(found["env"], "darkroom");
  EXPECT_EQ(found["horizon"], "8");
  EXPECT_EQ(found["source_lr"], "0.001");
  EXPECT_EQ(found["tasks"], "9");
}

TEST(Collector, EveryFamilysHistoriesLiveAgain) {
  const TemporaryFolder folder;
  for (const char* env : {"darkroom", "darkroompermuted", "darkkeytodoor"}) {
    for (const bool terminal : {false, true}) {
      EnvironmentOptions room = tiny_room();
      room.env = env;
      CollectionOptions options = tiny_collection(2);
      options.n_stream = 5;
      options.total_source_timesteps = 400;
      options.n_epochs = 1;
      options.batch_size = 50;
      options.terminal_next_states = terminal;
      const std::filesystem::path path = folder.path() / (std::string(env) + (terminal ? "-terminal" : ""));
      ASSERT_TRUE(Collector(room, options).run(path));
      const HistoryFile file(path);
      EXPECT_NO_THROW(HistorySet::load(path, {.tasks = {0, 8, 3},
                                              .steps = file.steps(),
                                              .streams = 5,
                                              .family = TaskFamily::of(room),
                                              .settings = collection_settings(room, options)}))
          << path;
    }
  }
}

TEST(Collector, TellsTheFilesSizeBeforehandAndCanMakeItSmaller) {
  const TemporaryFolder folder;
  CollectionOptions options = tiny_collection(2);
  const auto size = [&](const char* name) {
    const Collector collector(tiny_room(), options);
    EXPECT_TRUE(collector.run(folder.path() / name));
    const auto found = static_cast<int64_t>(std::filesystem::file_size(folder.path() / name));
    EXPECT_GT(1.05 * static_cast<double>(collector.file_bytes()), found);
    return found;
  };
  const int64_t whole = size("whole.hdf5");
  EXPECT_GE(whole, Collector(tiny_room(), options).file_bytes());
  options.kept_streams = 3;
  EXPECT_LT(size("three.hdf5"), 0.4 * static_cast<double>(whole));
  options.history_compression = 1;
  size("compressed.hdf5");
  const HistoryBounds bounds{.grid_size = 3, .num_actions = 5};
  const HistoryFile all(folder.path() / "whole.hdf5"), three(folder.path() / "three.hdf5"),
      compressed(folder.path() / "compressed.hdf5");
  EXPECT_EQ(three.streams(), 3);
  EXPECT_EQ(three.read(4, 800, 3, bounds).actions, all.read(4, 800, 3, bounds).actions);
  EXPECT_EQ(compressed.read(4, 800, 3, bounds).states, three.read(4, 800, 3, bounds).states);
}

TEST(Collector, DividesTheStreamsAmongSourcePolicies) {
  const TemporaryFolder folder;
  CollectionOptions options = tiny_collection(2);
  const TaskFamily family = TaskFamily::of(tiny_room());
  options.source_policies = 3;
  options.kept_streams = 5;
  const std::filesystem::path path = folder.path() / "history.hdf5";
  ASSERT_TRUE(Collector(tiny_room(), options).run(path));
  const HistoryFile file(path);
  ASSERT_EQ(file.streams(), 5);
  EXPECT_EQ(file.settings().at("source_policies"), "3");
  const HistoryBounds bounds{.grid_size = 3, .num_actions = 5};
  const History found = file.read(4, file.steps(), 5, bounds);
  std::vector<History> of_policies;
  for (int64_t policy = 0; policy < 3; ++policy) {
    const uint64_t seed = seed_of_policy(options, family, 4, policy);
    EXPECT_EQ(seed, static_cast<uint64_t>(options.alg_seed + 4 + 9 * policy));
    of_policies.push_back(*Ppo(family, 4, options.ppo(Family::kDarkroom), seed).learn(false));
  }
  EXPECT_NE(of_policies[0].actions, of_policies[1].actions);
  for (int64_t step = 0; step < file.steps(); ++step) {
    for (int64_t stream = 0; stream < 5; ++stream) {
      const History& expected = of_policies[static_cast<size_t>(stream % 3)];
      ASSERT_EQ(found.actions[found.at(step, stream)], expected.actions[expected.at(step, stream / 3)]);
    }
  }
}

TEST(Collector, AThreadsFailureReachesTheCaller) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "history.hdf5";
  CollectionListener listener;
  listener.progress = [&path](const CollectionProgress& progress) {
    if (progress.tasks_done == 1) std::filesystem::remove(path.string() + ".partial/settings.json");
    if (progress.tasks_done == 1)
      std::filesystem::rename(path.string() + ".partial", path.string() + ".gone");
  };
  EXPECT_THROW(Collector(tiny_room(), tiny_collection(1)).run(path, listener), DataError);
}

}  // namespace
}  // namespace adtrain
