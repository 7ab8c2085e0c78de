#pragma once

#include "collection/CollectionOptions.h"
#include "data/HistorySettings.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// Everything that the content of a collected file follows from, but the device: what is written into the
/// file, and what training on it expects to find there.
HistorySettings collection_settings(const EnvironmentOptions& environment, const CollectionOptions& options);

}  // namespace adtrain
