#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/Clock.h"

namespace adtrain {

/// Figures for Prometheus, as a text file that node_exporter's textfile collector reads. The format is
/// https://prometheus.io/docs/instrumenting/exposition_formats/ (text-based), every figure a gauge. For one
/// thread.
class PrometheusFile {
 public:
  /// Every figure carries the label run="…". Nothing is written before write().
  PrometheusFile(std::filesystem::path path, std::string run);

  /// Sets the newest value of the figure adtrain_`name`; `labels` are more of them, such as {{"rank", "0"}}.
  void set(const std::string& name, double value, const std::map<std::string, std::string>& labels = {});
  /// Replaces the file at once, so that no reader sees a part of it, unless that was done less than
  /// kSecondsBetween ago: Prometheus asks no more often, and on a network disk it takes long. A file that
  /// cannot be written costs the run nothing: see failure().
  void write();
  static constexpr double kSecondsBetween = 5;
  /// Does it in any case.
  void write_now();
  /// Why the last write() failed; empty where it did not.
  const std::string& failure() const { return failure_; }

 private:
  std::filesystem::path path_;
  std::string run_;
  std::map<std::string, std::map<std::string, double>> figures_;  ///< by name, then by labels as text
  std::optional<Deadline> next_;                                  ///< before which write() waits
  std::string failure_;
};

}  // namespace adtrain
