#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/Clock.h"
#include "memory/RankMemory.h"
#include "parallel/SlowRankMonitor.h"
#include "telemetry/Console.h"
#include "telemetry/MetricsLog.h"
#include "telemetry/PrometheusFile.h"
#include "telemetry/TensorBoardWriter.h"
#include "training/LossSums.h"
#include "training/ReturnMeter.h"

namespace adtrain {

/// The figures of the steps since the last report.
struct TrainingFigures {
  int64_t step = 0;
  LossFigures loss;
  double learning_rate = 0;
  double gradient_norm = 0;                  ///< of the last step's global-batch gradient, before clipping
  int64_t sequences = 0;                     ///< drawn since the beginning of the run, by all ranks
  double data_wait_seconds = 0;              ///< of rank 0
  double exposed_communication_seconds = 0;  ///< of a step of rank 0: what the backward pass did not hide
  std::vector<RankMemory> memory;            ///< by rank
  int64_t micro_batch = 1;                   ///< sequences, of each rank
  std::optional<int64_t> skipped_steps;      ///< with fp16: for overflow, since the beginning of the run
  std::vector<SlowRank> slow_ranks;          ///< those that hold the others back
};

/// Reports a run's progress: console, metrics.jsonl, metrics.prom, TensorBoard events and the loss curve.
/// Rank 0's has a folder; the other ranks' is silent and writes nothing.
class TrainingLog {
 public:
  struct Paths {
    std::filesystem::path metrics, tensorboard, loss_curve;  ///< the last one without extension
  };
  /// `given` are shown on TensorBoard's HParams page.
  TrainingLog(Console& console, std::optional<Paths> paths, Hyperparameters given = {});

  /// Starts the log of a run that begins, or continues, after `first_step` of `last_step` steps, when its
  /// ranks have drawn `first_sequences`. Throws EnvironmentError where its files cannot be written.
  void begin(int64_t first_step, int64_t first_sequences, int64_t last_step);
  void notice(const std::string& sentence) { console_.notice(sentence); }
  void warn(const std::string& sentence) { console_.warn(sentence); }
  /// Prints text of several lines, which ends with a line break.
  void lines(const std::string& text);
  void trained(const TrainingFigures& figures);
  /// That `share` of the held-out loss after this step is measured, for the progress line.
  void measuring_held_out(int64_t step, double share);
  void held_out(int64_t step, const LossFigures& figures);
  /// Whether the held-out loss after this step is recorded. Rank 0's answer counts.
  bool has_held_out(int64_t step) const { return step_of_held_out_ == step; }
  void returns(int64_t step, const ReturnFigures& figures);
  /// Whether in-context returns after this step are recorded. Rank 0's answer counts.
  bool has_returns(int64_t step) const { return step_of_returns_ == step; }
  /// `finished`: the run has done all of its steps.
  void end(bool finished);

 private:
  struct Point {
    int64_t step;
    double value;
  };
  /// Into the record and the events. Returns the text for the console.
  std::string record_memory(const TrainingFigures& figures, nlohmann::ordered_json& record);
  /// What the memory of the rank with the most in use holds, as of the last report.
  void tell_memory() const;
  void show_progress(int64_t step);
  void write_prometheus(int64_t step);
  void read_back_curve();
  void warn_of_lost_figures();
  void draw_loss_curve() const;

  Console& console_;
  std::optional<Paths> paths_;
  Hyperparameters given_;
  std::unique_ptr<MetricsLog> metrics_;
  std::unique_ptr<TensorBoardWriter> tensorboard_;
  std::unique_ptr<PrometheusFile> prometheus_;
  std::unique_ptr<Progress> progress_;
  Stopwatch since_report_;
  int64_t reported_step_ = 0, reported_sequences_ = 0;
  std::string rate_text_, held_out_text_, rest_text_;  ///< of the progress line
  std::vector<RankMemory> memory_;
  bool warned_of_lost_figures_ = false;
  std::vector<Point> training_loss_, held_out_loss_;
  std::optional<int64_t> step_of_held_out_, step_of_returns_;  ///< the newest ones
};

}  // namespace adtrain
