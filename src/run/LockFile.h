#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "run/LaunchIdentity.h"

namespace adtrain {

/// The holder of a run's folder: rank 0 of a start, on behalf of all its ranks.
struct LockHolder {
  ProcessIdentity process;
  LaunchIdentity launch;
  int64_t world_size = 1;
  double since = 0;   ///< seconds since 1970
  std::string token;  ///< unique to this lock

  /// "process 4711 on host n05 (SLURM, 8 ranks, job 123), since 2026-11-22 13:05:10".
  std::string text() const;
  /// As it stands in the file.
  std::string json_text() const;
};

/// Nothing where there is no such file. A half-written or damaged file gives a holder without information.
std::optional<LockHolder> read_holder(const std::filesystem::path& file);

/// When the file was last refreshed, by the file system's clock; nothing where that cannot be told.
std::optional<double> modified_seconds(const std::filesystem::path& file);
/// Refreshes it. On failure, waiting processes see the file age.
void touch(const std::filesystem::path& file);

/// Links `name`. Whether this process made it; false where another was first. Throws
/// std::filesystem::filesystem_error.
bool link_exclusively(const std::filesystem::path& existing, const std::filesystem::path& name);

}  // namespace adtrain
