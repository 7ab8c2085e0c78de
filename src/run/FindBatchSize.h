#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/Error.h"

namespace adtrain {

/// `adtrain find-batch-size`: the search of a training run without the training. As one of the ranks of a
/// launch, or alone.
ExitCode find_batch_size_of_run(const std::filesystem::path& config_file,
                                const std::vector<std::string>& overrides);

}  // namespace adtrain
