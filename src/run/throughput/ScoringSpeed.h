#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace adtrain {

/// How fast a scoring was, once it was warm. A value.
struct ScoringSpeed {
  int64_t samples = 0;
  double began = 0, ended = 0;    ///< seconds of the host's monotonic clock, which its processes share
  int64_t batch = 0;              ///< windows of one forward pass
  int64_t processes = 1;          ///< ranks, or processes that know nothing of each other
  std::string device;             ///< a GPU's name, or "CPU"
  std::string precision;          ///< "fp32"
  std::vector<std::string> gpus;  ///< each that computed, by its identity
  int64_t memory_peak = 0;        ///< bytes in use on the fullest GPU; on the CPU of the largest process
  int64_t memory_total = 0;       ///< of that GPU; 0 on the CPU

  double seconds() const { return ended - began; }
  double samples_per_second() const { return static_cast<double>(samples) / seconds(); }

  nlohmann::ordered_json json() const;
  /// Of processes that worked at the same time: from the first one's begin to the last one's end. At least
  /// one.
  static ScoringSpeed together(const std::vector<ScoringSpeed>& parts);

  /// The file in a folder of results.
  static std::filesystem::path file(const std::filesystem::path& folder);
  /// Atomically. Throws std::filesystem::filesystem_error.
  void write(const std::filesystem::path& folder) const;
  /// Throws DataError where the file is missing, or is not what write() writes.
  static ScoringSpeed read(const std::filesystem::path& folder);
};

}  // namespace adtrain
