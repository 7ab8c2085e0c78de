#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/Error.h"
#include "collection/CollectionProgress.h"
#include "data/HistoryFileWriter.h"
#include "run/Collect.h"
#include "telemetry/Console.h"

namespace adtrain {

/// What is collected.
struct ShownCollection {
  std::filesystem::path file;
  int64_t tasks;
  std::optional<double> oracle;  ///< the mean of the tasks' best returns, where they are known
};

/// Collects by `run`, a collector's, until the file is complete or a signal comes, and shows how it goes and
/// what came of it. Returns and throws as collect().
ExitCode collect_shown(
    const ShownCollection& shown, const CollectRequest& request, Console& console,
    const std::function<bool(const CollectionListener& listener, ExistingHistories existing)>& run);

}  // namespace adtrain
