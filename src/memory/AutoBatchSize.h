#pragma once

#include <cstdint>

namespace adtrain {

/// A batch size that is to be found by trials, and its word in a configuration.
inline constexpr int64_t kAutoBatchSize = 0;
inline constexpr const char* kAutoBatchSizeWord = "auto_batch_size";

}  // namespace adtrain
