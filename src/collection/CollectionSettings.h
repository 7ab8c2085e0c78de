#pragma once

#include "collection/CollectionOptions.h"
#include "data/HistorySettings.h"
#include "environments/EnvironmentOptions.h"
#include "environments/worker/WorkerOptions.h"

namespace adtrain {

/// All settings that determine the content of a collected file, except the device: they are written into the
/// file, and training on it expects them there.
HistorySettings collection_settings(const EnvironmentOptions& environment, const CollectionOptions& options);

/// The same of own tasks, which workers play.
HistorySettings own_collection_settings(const EnvironmentOptions& environment,
                                        const CollectionOptions& options, const WorkerOptions& workers);

}  // namespace adtrain
