#include "environments/worker/WorkerPool.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "WorkerModules.h"
#include "base/Clock.h"
#include "base/File.h"
#include "base/Random.h"
#include "environments/worker/WorkerFault.h"
#include "environments/worker/WorkerGrid.h"
#include "support/FreshSeed.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class PlayInWorkers : public WorkerTest {};

/// The corridors of tests/environments/worker/corridors.py, as they are told there.
struct PlainCorridor {
  int64_t length;
  int32_t position = 0, episode = 0;

  int32_t last_position = 0, last_episode = 0;
  double reward = 0;
  bool ended = false;

  void step(int32_t action) {
    position += action == 0 ? 1 : 0;
    last_position = position;
    last_episode = episode;
    ended = position == length;
    reward = ended ? episode + 0.25 : 0;
    if (!ended) return;
    position = 0;
    ++episode;
  }
};

/// Plays random actions and compares all that the workers say with plain corridors.
void compare_with_plain(WorkerOptions options) {
  SCOPED_TRACE(*options.env_worker);
  RandomStream random(fresh_seed());
  WorkerPool pool(options, {});
  EXPECT_THAT(*pool.hello().tasks, ElementsAre("three", "five", "eight"));
  for (const size_t count : {7, 1}) {
    std::vector<int64_t> tasks;
    std::vector<PlainCorridor> plain;
    for (size_t i = 0; i < count; ++i) {
      tasks.push_back(random.below(3));
      plain.push_back({.length = std::vector<int64_t>{3, 5, 8}[static_cast<size_t>(tasks.back())]});
    }
    std::vector<std::unique_ptr<WorkerGrid>> parts;
    for (auto& batch : pool.make(places_of(tasks))) {
      parts.push_back(std::make_unique<WorkerGrid>(std::move(batch), pool.hello()));
    }
    ASSERT_EQ(parts.size(), options.env_overlap ? std::min<size_t>(2, count) : 1);
    std::vector<std::vector<int32_t>> actions(parts.size());
    for (int step = 0; step < 60; ++step) {
      for (size_t part = 0; part < parts.size(); ++part) {
        actions[part].clear();
        for (int64_t i = 0; i < parts[part]->size(); ++i)
          actions[part].push_back(static_cast<int32_t>(random.below(5)) % 3);
        parts[part]->begin_step(actions[part]);
      }
      size_t at = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        const WorkerGrid& grid = *parts[part];
        parts[part]->finish_step();
        for (size_t i = 0; i < actions[part].size(); ++i, ++at) {
          PlainCorridor& corridor = plain[at];
          corridor.step(actions[part][i]);
          ASSERT_EQ(grid.ended()[i] != 0, corridor.ended) << "step " << step;
          ASSERT_EQ(grid.rewards()[i], corridor.reward);
          ASSERT_EQ(grid.states()[2 * i], corridor.position);
          ASSERT_EQ(grid.states()[2 * i + 1], corridor.episode % 9);
          ASSERT_EQ(grid.next_states()[2 * i], corridor.last_position);
          ASSERT_EQ(grid.next_states()[2 * i + 1], corridor.last_episode % 9);
        }
      }
      ASSERT_EQ(at, count);
    }
  }
}

TEST_F(PlayInWorkers, SingleEnvironmentsStepAndResetAsTheyShould) {
  WorkerOptions options = worker_of("corridors:make_env");
  compare_with_plain(options);
  options.env_overlap = false;
  compare_with_plain(options);
}

TEST_F(PlayInWorkers, SeveralProcessesShareTheEnvironments) {
  WorkerOptions options = worker_of("corridors:make_env");
  options.env_workers = 3;
  compare_with_plain(options);
}

TEST_F(PlayInWorkers, VectorsOfEveryAutoresetModeDoTheSame) {
  for (const char* mode : {"next_step", "same_step", "disabled"}) {
    compare_with_plain(worker_of(std::string("corridors:make_") + mode));
  }
}

/// Whoever copies it may have episodes of other lengths.
TEST_F(PlayInWorkers, TheVectorOfThePageLeavesOthersAsTheyAreWhereSomeAreReset) {
  const std::string page = read_file(ADTRAIN_SOURCE_DIR "/docs/own-environments.md"), begin = "```python\n";
  const size_t first = page.find(begin) + begin.size();
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "page.py") << page.substr(first, page.find("```", first) - first);
  std::ofstream(folder.path() / "copied.py") << R"(
import numpy as np
from page import Darkrooms


class Copied(Darkrooms):
    def __init__(self, tasks):
        super().__init__(tasks)
        self.lengths = np.array(tasks) + 2

    def step(self, actions):
        positions, rewards, terminated, _, info = super().step(actions)
        return positions, rewards, terminated, self.steps == self.lengths, info


def make_vec_env(tasks, seeds):
    return Copied(tasks)
)";
  WorkerOptions options = worker_of("copied:make_vec_env");
  options.env_overlap = false;
  setenv("PYTHONPATH", folder.path().c_str(), 1);
  WorkerPool pool(options, {});
  auto batches = pool.make(places_of({0, 1, 2}));
  WorkerGrid grid(std::move(batches.front()), pool.hello());
  for (int32_t step = 1; step <= 13; ++step) {
    const std::vector<int32_t> down(3, 0);  // from row 4, where an episode begins
    grid.begin_step(down);
    grid.finish_step();
    for (size_t place = 0; place < 3; ++place) {
      const int32_t steps = step % (static_cast<int32_t>(place) + 2);
      ASSERT_EQ(grid.ended()[place] != 0, steps == 0) << "place " << place << ", step " << step;
      ASSERT_EQ(grid.states()[2 * place], 4 + steps) << "place " << place << ", step " << step;
    }
  }
}

TEST_F(PlayInWorkers, AnEpisodeThatTheEnvironmentDoesNotEndIsTruncatedAndSaid) {
  for (const char* function : {"corridors:make_endless", "corridors:make_endless_vector"}) {
    WorkerOptions options = worker_of(function);
    options.max_episode_steps = 4;
    options.env_overlap = false;
    std::vector<std::string> said;
    WorkerPool pool(options, [&](const std::string& sentence) { said.push_back(sentence); });
    const auto batches = pool.make(places_of({2, 0, 2}));
    WorkerBatch& batch = *batches.front();
    for (int step = 1; step <= 9; ++step) {
      batch.begin_step();
      batch.finish_step();
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(batch.ended()[i] != 0, step % 4 == 0) << step;
        EXPECT_EQ(batch.terminated()[i], 0);
      }
    }
    ASSERT_EQ(said.size(), 2U) << "once a task";
    EXPECT_THAT(said.front(), AllOf(HasSubstr("2 (eight)"), HasSubstr("max_episode_steps = 4")));
    EXPECT_EQ(pool.notices().counts("truncated"), (std::map<int64_t, int64_t>{{0, 2}, {2, 4}}));
  }
}

TEST_F(PlayInWorkers, RealNumbersCrossAsTheyAreAndActionsAreClipped) {
  for (const bool clip : {true, false}) {
    WorkerOptions options = worker_of("corridors:make_real");
    options.clip_actions = clip;
    std::vector<std::string> said;
    WorkerPool pool(options, [&](const std::string& sentence) { said.push_back(sentence); });
    const auto batches = pool.make(places_of({1}));
    WorkerBatch& batch = *batches.front();
    for (const double action : {0.25, 5.0}) {
      const std::vector<double> row = {action, -action};
      ASSERT_EQ(batch.actions().size(), row.size() * sizeof(double));
      std::memcpy(batch.actions().data(), row.data(), batch.actions().size());
      batch.begin_step();
      batch.finish_step();
      const double done = clip ? std::min(action, 2.0) : action;
      EXPECT_EQ(batch.rewards()[0], done);
      std::vector<float> observed(3);
      ASSERT_EQ(batch.observations().size(), observed.size() * sizeof(float));
      std::memcpy(observed.data(), batch.observations().data(), batch.observations().size());
      EXPECT_THAT(observed, ElementsAre(static_cast<float>(3 * done), static_cast<float>(-done), 0.5F));
    }
    ASSERT_EQ(said.size(), 1U);
    EXPECT_THAT(said.front(),
                AllOf(HasSubstr("1 (five)"), HasSubstr("outside"), HasSubstr("Box((3,), float32)")));
    EXPECT_EQ(pool.notices().counts("outside").at(1), 1);
  }
}

TEST_F(PlayInWorkers, MuchOutputStopsNothing) {
  WorkerPool pool(worker_of("corridors:make_talkative"), {});
  EXPECT_EQ(pool.make(places_of({0, 1, 2})).size(), 2U);
}

TEST_F(PlayInWorkers, AForeignNextStepVectorPlaysWhereEpisodesEndTogetherAndIsRefusedElsewhere) {
  WorkerOptions options = worker_of("corridors:make_foreign");
  options.env_overlap = false;
  WorkerPool pool(options, {});
  const auto play = [&](const std::vector<int64_t>& tasks) {
    const auto batches = pool.make(places_of(tasks));
    std::vector<int> ends;
    for (int step = 1; step <= 10; ++step) {
      batches.front()->begin_step();
      batches.front()->finish_step();
      if (batches.front()->ended()[0] != 0) ends.push_back(step);
    }
    return ends;
  };
  EXPECT_THAT(play({1, 1}), ElementsAre(5, 10));
  try {
    play({1, 0});
    FAIL() << "the second place cannot be reset";
  } catch (const WorkerFault& fault) {
    EXPECT_THAT(fault.what(), AllOf(HasSubstr("NextStep of Foreign"), HasSubstr("task 0 (three), place 1"),
                                    HasSubstr("SyncVectorEnv")));
  }
}

/// Processes whose parent is `parent`.
std::set<std::string> children_of(pid_t parent) {
  std::ifstream file("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  std::set<std::string> children;
  for (std::string child; file >> child;) children.insert(child);
  return children;
}

TEST_F(PlayInWorkers, NoMoreProcessesAreStartedThanHaveEnvironments) {
  const size_t before = children_of(getpid()).size();
  for (const bool overlap : {false, true}) {
    WorkerOptions options = worker_of("corridors:make_env");
    options.env_workers = 6;
    options.env_overlap = overlap;
    WorkerPool pool(options, {}, /*most_places=*/3);
    EXPECT_EQ(children_of(getpid()).size(), before + (overlap ? 2U : 3U)) << "two in the larger half";
    EXPECT_EQ(pool.make(places_of({0, 1, 2})).size(), overlap ? 2U : 1U);
  }
}

TEST_F(PlayInWorkers, NothingIsLeftBehindAtTheEnd) {
  const auto before = children_of(getpid());
  {
    WorkerPool pool(worker_of("corridors:make_env"), {});
    const auto batches = pool.make(places_of({0, 1}));
    EXPECT_GT(children_of(getpid()).size(), before.size());
    batches.front()->begin_step();
  }
  EXPECT_EQ(children_of(getpid()), before);
}

/// Also while the worker is in the middle of a step that never ends.
TEST_F(PlayInWorkers, AWorkerDiesWithItsParent) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans become children of this process
  for (const char* function : {"corridors:make_env", "faults:make_hanging"}) {
    const pid_t parent = fork();
    if (parent == 0) {
      WorkerOptions options = worker_of(function);
      options.env_overlap = false;
      WorkerPool pool(options, {});
      const auto batches = pool.make(places_of({1}));
      for (int step = 0; step < 6; ++step) {
        batches.front()->begin_step();
        batches.front()->finish_step();
      }
      batches.front()->begin_step();  // the step that hangs
      usleep(200'000);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(parent, &status, 0), parent);
    ASSERT_TRUE(WIFSIGNALED(status)) << function;
    const Deadline deadline(10);
    pid_t orphan = 0;
    while ((orphan = waitpid(-1, &status, WNOHANG)) == 0 && !deadline.passed()) usleep(10'000);
    EXPECT_GT(orphan, 0) << function << ": the worker lives on";
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

}  // namespace
}  // namespace adtrain
