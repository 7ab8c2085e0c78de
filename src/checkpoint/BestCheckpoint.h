#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

namespace adtrain {

/// Which of a run's checkpoints is the best by a figure, as `best.json` beside them records it.
struct BestCheckpoint {
  static constexpr const char* kFileName = "best.json";

  int64_t step = 0;
  double held_out_return = 0;
  /// What the figure is of: figures of other tasks or settings do not compare with it.
  nlohmann::ordered_json measured = nlohmann::ordered_json::object();

  /// Replaces the file in `folder` atomically. Throws std::filesystem::filesystem_error.
  void write(const std::filesystem::path& folder) const;
  /// Nothing where there is no readable file.
  static std::optional<BestCheckpoint> read(const std::filesystem::path& folder);
};

}  // namespace adtrain
