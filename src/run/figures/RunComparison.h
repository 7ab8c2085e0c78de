#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "run/figures/CheckpointDifference.h"
#include "run/figures/RecordedRun.h"

namespace adtrain {

/// In what a figure of two runs differs, at the steps (or episodes) that both have.
struct CurveDifference {
  struct Point {
    int64_t x = 0;
    double first = 0, second = 0;
    double by() const;
  };
  std::string name;  ///< "loss", "returns in test-step-4000"
  std::string unit;  ///< "step" or "episode"
  int64_t common = 0, different = 0;
  std::optional<Point> first, largest;  ///< where it differs

  static CurveDifference between(const std::string& name, const std::string& unit, const Curve& first,
                                 const Curve& second);
  std::string text() const;
};

/// What two runs, A and B, differ in.
struct RunComparison {
  struct Result {
    std::string name;
    std::optional<double> first, second;  ///< one may be none: that run holds no such result
  };
  std::string first, second;  ///< the folders
  std::vector<ConfigChange> config;
  std::vector<Result> results;
  std::vector<CurveDifference> curves;
  TensorDifference returns;                ///< of evaluations that both have, by task and episode
  std::optional<int64_t> checkpoint_step;  ///< the newest that both have
  CheckpointDifference checkpoint;
  std::vector<std::string> unmatched;  ///< sentences: what one has, and the other has not

  /// Throws CheckpointError where a checkpoint does not verify, DataError where results are damaged.
  static RunComparison between(const RecordedRun& first, const RecordedRun& second);

  /// Whether they have losses, checkpoints and returns of the same steps, and all are equal in all bits. What
  /// depends on time is not compared. False where there is nothing to compare.
  bool equal() const;
  std::string text() const;
  nlohmann::ordered_json json() const;
};

}  // namespace adtrain
