#pragma once

#include <algorithm>
#include <string>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "SmallRun.h"
#include "checkpoint/Safetensors.h"

namespace adtrain {

/// The largest difference between the weights of two finished runs.
inline double largest_difference(const SmallRun& runs, const std::string& a, const std::string& b) {
  const auto weights = [&](const std::string& name) {
    return read_safetensors(runs.run(name) / "checkpoints" / "step-20" / "model.safetensors");
  };
  const auto first = weights(a).tensors, second = weights(b).tensors;
  EXPECT_EQ(first.size(), second.size());
  double largest = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].name, second[i].name);
    largest = std::max(largest, (first[i].tensor - second[i].tensor).abs().max().item<double>());
  }
  return largest;
}

}  // namespace adtrain
