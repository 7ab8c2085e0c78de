#pragma once

#include "collection/CollectionOptions.h"
#include "data/HistorySettings.h"
#include "environments/EnvironmentOptions.h"

namespace adtrain {

/// All settings that determine the content of a collected file, except the device: they are written into the
/// file, and training on it expects them there.
HistorySettings collection_settings(const EnvironmentOptions& environment, const CollectionOptions& options);

}  // namespace adtrain
