#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>

#include <nlohmann/json.hpp>

#include "run/RunConfig.h"
#include "training/Trainer.h"
#include "watchdog/Failure.h"

namespace adtrain {

/// The one JSON document that `adtrain train --json` prints on standard output when training ends, however it
/// does: {"result": "finished" | "stopped" | "failed", "exit_code", "reason", "run", "step", "steps",
/// "saved_step", "metrics", "held_out", "paths": {…}, "failure": {…} where it failed}. What is not known is
/// left out. The first call prints it, from whichever thread; later ones do nothing.
class TrainingResult {
 public:
  /// Nothing is printed unless `wanted`.
  explicit TrainingResult(bool wanted) : printed_(!wanted) {}

  /// To be called before the ranks meet.
  void is_of(const RunConfig& config);
  /// From here on the run's folder is this launch's, and what is in it belongs to the result.
  void claimed() { claimed_ = true; }
  void ended(Trainer::End how, ExitCode code, int64_t step);
  /// The first failure of several ranks.
  void failed(const Failure& failure);
  /// An error that ends all ranks alike, or the only one.
  void failed(const std::exception& error);

 private:
  void print(nlohmann::ordered_json result);

  /// Where the result is that of a failure, which must not be hidden by another.
  void print_leniently(nlohmann::ordered_json result);

  std::atomic<bool> printed_, claimed_ = false;
  std::optional<RunFolder> folder_;
  int64_t steps_ = 0;
};

}  // namespace adtrain
