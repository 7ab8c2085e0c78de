#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/Error.h"
#include "checkpoint/CheckpointStore.h"

namespace adtrain {

/// With random tensors, one of them of so many rows.
inline Snapshot random_snapshot(int64_t step, int64_t elements = 64) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.model = {{"embed.weight", at::randn({elements, 4})}, {"head.bias", at::randn({5})}};
  snapshot.optimizer = {{"exp_avg.embed.weight", at::randn({elements, 4})},
                        {"step", at::tensor(double(step))}};
  snapshot.state = {{"samples_drawn", step * 32}, {"world_size", 2}};
  return snapshot;
}

inline void expect_same(const std::vector<NamedTensor>& read, const std::vector<NamedTensor>& written) {
  ASSERT_EQ(read.size(), written.size());
  for (const NamedTensor& named : written) {
    const auto found = std::ranges::find(read, named.name, &NamedTensor::name);
    ASSERT_NE(found, read.end()) << named.name;
    EXPECT_TRUE(at::equal(found->tensor, named.tensor)) << named.name;
  }
}

inline void expect_same(const Snapshot& read, const Snapshot& written) {
  EXPECT_EQ(read.step, written.step);
  EXPECT_EQ(read.state, written.state);
  expect_same(read.model, written.model);
  expect_same(read.optimizer, written.optimizer);
}

inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

/// What a CheckpointError of the action says; "none" where it throws none.
inline std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "none";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

}  // namespace adtrain
