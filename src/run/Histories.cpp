#include "run/Histories.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "collection/CollectionSettings.h"
#include "environments/TaskFamily.h"

namespace adtrain {

HistorySet load_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams) {
  const std::filesystem::path file = config.history_file();
  if (!std::filesystem::exists(file)) {
    throw DataError(fmt::format(
        "{} does not exist; expected learning histories there: run `adtrain collect` with the same "
        "configuration, or point traj_dir at the folder that holds them",
        file.string()));
  }
  return HistorySet::load(file, {.tasks = tasks,
                                 .steps = config.data.train_source_timesteps,
                                 .streams = streams,
                                 .family = TaskFamily::of(config.environment),
                                 .settings = collection_settings(config.environment, config.collection)});
}

std::string identity_of(const HistorySet& histories) {
  return histories.file_checksum().empty() ? histories.digest() : histories.file_checksum();
}

}  // namespace adtrain
