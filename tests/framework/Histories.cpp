#include "adtrain/histories.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "adtrain/error.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kFile = "data/history_darkroom_PPO_alg-seed0.hdf5";

TEST(Histories, SayWhatTheFileHolds) {
  const Histories histories(kFile);
  EXPECT_EQ(histories.tasks(), 49);
  EXPECT_EQ(histories.steps(), 1000);
  EXPECT_EQ(histories.streams(), 4);
  EXPECT_EQ(histories.settings().at("env"), "darkroom");
}

TEST(Histories, AStreamIsOneWalk) {
  const Histories histories(kFile);
  const TaskHistory task = histories.read(30);
  ASSERT_EQ(task.observations.sizes(), (std::vector<int64_t>{4, 1000, 2}));
  EXPECT_EQ(task.dones.sum().item<int64_t>(), 4 * 1000 / 20);
  // The cell after a step is the cell before the next.
  EXPECT_TRUE(at::equal(task.next_observations.slice(1, 0, -1), task.observations.slice(1, 1)));
  // Darkroom's goal of task 30 on the grid of 7 is (4, 2); a step that ends there pays. Where an episode
  // ends, the file holds the state after the reset.
  const at::Tensor on_goal =
      (task.next_observations == torch::tensor({4, 2}, torch::kInt)).all(-1) & ~task.dones;
  EXPECT_TRUE(at::equal(on_goal, (task.rewards == 1) & ~task.dones));
  const at::Tensor moves = torch::tensor({{1, 0}, {-1, 0}, {0, 1}, {0, -1}, {0, 0}}, torch::kInt);
  const at::Tensor expected = (task.observations + moves.index({task.actions.to(torch::kLong)})).clamp(0, 6);
  EXPECT_TRUE(at::equal(expected.masked_fill(task.dones.unsqueeze(-1), 0),
                        task.next_observations.masked_fill(task.dones.unsqueeze(-1), 0)));
}

TEST(Histories, WhatIsWrongIsSaid) {
  const Histories histories(kFile);
  EXPECT_THROW(histories.read(49), std::invalid_argument);
  EXPECT_THROW(histories.read(-1), std::invalid_argument);
  const auto error_of = [](const fs::path& file) {
    try {
      Histories(file).read(3);
    } catch (const std::exception& error) {
      EXPECT_EQ(exit_code_of(error), 4);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const TemporaryFolder folder;
  EXPECT_THAT(error_of(folder.path() / "none.hdf5"), HasSubstr("none.hdf5: no such file"));
  const fs::path damaged = folder.path() / "damaged.hdf5";
  fs::copy_file(kFile, damaged);
  std::fstream(damaged, std::ios::in | std::ios::out | std::ios::binary).seekp(0).write("no HDF5", 7);
  EXPECT_THAT(error_of(damaged), HasSubstr("damaged.hdf5"));
}

}  // namespace
}  // namespace adtrain
