#pragma once

#include <memory>
#include <string>

#include "data/BatchAssembler.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/own/OwnHistories.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The histories of a training run, as the windows that are cut from them. Immutable.
class TrainingHistories {
 public:
  /// What is known of own tasks before.
  struct OwnTasks {
    std::shared_ptr<const OwnHistories> histories;  ///< null for the tasks of a family
    std::string known =
        "";  ///< the tasks.json of the run that is continued, which spares measuring them; or ""
  };
  /// Those of the configuration: of a family in memory, of own tasks read in place. Collective. Throws as
  /// TrainingTasks, HistorySet and ColumnWindows do.
  static std::unique_ptr<TrainingHistories> of(const RunConfig& config, const Ranks& ranks, Console& console,
                                               OwnTasks own);
  virtual ~TrainingHistories() = default;

  const BatchAssembler& windows() const { return *windows_; }
  /// Null where no held-out loss is measured.
  const BatchAssembler* held_out_windows() const { return held_out_windows_.get(); }
  /// Which of the split's tasks the file lacks, as a sentence; "" for none.
  const std::string& missing_tasks() const { return missing_tasks_; }
  /// The same on all ranks if they see the same histories.
  const std::string& digest() const { return digest_; }
  /// Identifies the histories in a checkpoint.
  const std::string& identity() const { return identity_; }
  /// What tasks.json is to hold; "" for a grid family.
  const std::string& tasks() const { return tasks_; }

 protected:
  std::unique_ptr<BatchAssembler> windows_, held_out_windows_;
  std::string missing_tasks_, digest_, identity_, tasks_;
};

}  // namespace adtrain
