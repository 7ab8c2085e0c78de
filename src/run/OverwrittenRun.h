#pragma once

#include <string>

#include "run/RunConfig.h"
#include "run/RunFolder.h"

namespace adtrain {

/// Throws ConfigError where a run is to begin with weights (init_from) of the run in this folder, which would
/// be deleted before it could.
void refuse_overwritten_weights(const RunConfig& config, const RunFolder& overwritten);

/// Throws ConfigError where a run's folder would lie among another run's checkpoints or results, which that
/// one deletes with all that is in them. `key` is what names the folder: "run_name".
void refuse_run_within_run(const RunFolder& folder, const std::string& key);

/// Deletes what a run was trained to and what was measured of it, so that another begins in its folder:
/// state.json first, as no restart may continue what is being deleted, and results before the weights that
/// they tell of. config.yaml and what else the next start writes anew stay until then. To be called by the
/// holder of the run's lock. Throws std::filesystem::filesystem_error.
void delete_training(const RunFolder& folder);

/// Deletes what processes that were killed left of files in this folder itself. As above.
void delete_temporaries(const RunFolder& folder);

/// Deletes all that a run has written but its lock: it has not begun then. config.yaml goes last, so that the
/// settings of what is left are known at any moment. What others have put into the folder stays. As above.
void delete_run(const RunFolder& folder);

}  // namespace adtrain
