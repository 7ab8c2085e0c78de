#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "run/BatchSizesOfRun.h"
#include "run/ConfigChanges.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/RunLock.h"
#include "run/RunState.h"
#include "telemetry/Console.h"
#include "training/StepKeeper.h"
#include "training/Trainer.h"

namespace adtrain {

/// The life of one run as one start of it sees it: claim, resume or restart, save, stop, requeue. Its state
/// is on the disk (the lock, state.json, the checkpoints, requeue), and the exit code follows from them.
///
///     RunLifecycle life(…);              // the folder is locked, nothing in it is changed yet
///     load histories, build the model
///     life.check_histories(…);           // are they the run's?
///     trainer.start_from(life.resumed());
///     const StopRequest stop;
///     life.claim();                      // from here on it is this start's run
///     trainer.run(stop, …);              // saves by the life
///     return life.end(…);                // 0 or 75, where the last step's checkpoint verifies
///
/// Every rank has one and makes the same calls; rank 0's does the work, and its destructor releases the
/// folder.
class RunLifecycle final : public StepKeeper {
 public:
  /// What the user requests.
  struct Wish {
    bool resume = false;
    bool overwrite = false;
    /// Keys that may differ although they are not free_on_resume.
    std::vector<std::string> allowed_changes = {};
  };

  /// Decides what this start does. With both wishes it resumes, or starts anew where no step is saved yet. A
  /// restart by the same launcher continues what an earlier attempt of it had claimed, whatever the wish;
  /// else the wish counts. Collective; borrows all. Throws ConfigError where another start has the folder,
  /// where an earlier run would be lost, and where the run to be continued has another meaning;
  /// CheckpointError where there is nothing to continue; EnvironmentError where the folder cannot be written.
  RunLifecycle(const RunConfig& config, const Wish& wish, const Ranks& ranks, Console& console);
  ~RunLifecycle() override;

  /// The checkpoint that this start continues. Null for a new run, and on all ranks but 0.
  const Snapshot* resumed() const { return found_ ? &found_->snapshot : nullptr; }
  /// Batch sizes that the configuration leaves open and the run that is continued has found before. On rank
  /// 0.
  const BatchSizesOfRun& batch_sizes() const { return batch_sizes_; }
  /// Throws ConfigError where the checkpoint was trained on histories of another digest. Compares nothing
  /// where the checkpoint has none.
  void check_histories(const std::string& digest);
  /// Entries for each checkpoint's manifest.
  nlohmann::json origin() const;
  /// Tells a new run's record with which weights it begins: InitialWeights::record().
  void begins_with(nlohmann::ordered_json weights) { initial_weights_ = std::move(weights); }

  /// Makes the run this start's. To be called once all that training needs is ready: a start that fails
  /// earlier leaves an existing run as it was. Throws EnvironmentError where the folder cannot be written.
  void claim();

  void save(const Snapshot& snapshot, bool leaving) override;
  /// With keep_best: keeps the step where its return on held-out tasks is the best one so far.
  void measured(int64_t step, const ReturnFigures& figures) override;
  bool wants_step() override;
  std::optional<int64_t> safe_step() const override { return safe_step_; }

  /// Ends the run, which is finished or was stopped after `step`. Returns the exit code. Throws
  /// CheckpointError where that step's checkpoint does not exist or does not verify.
  ExitCode end(Trainer::End how, int64_t step);

 private:
  void decide();
  void find_checkpoint();
  void compare_configuration();
  void rewrite();
  bool is_past_its_end() const;
  void check_folder(void (RunLock::*check)() const) const;
  void keep_former_configuration() const;
  int64_t ranks_that_saved() const;
  void confirm(int64_t step);
  void give_back();
  void write_state(RunState::Stage stage, int64_t step) const;

  const RunConfig& config_;
  Wish wish_;
  const LaunchContext& context_;
  bool root_;
  int64_t world_size_;
  std::string device_;
  Console& console_;
  RunFolder folder_;
  CheckpointStore checkpoints_;
  bool batch_sizes_were_found_;  ///< by this start, or kept from the one that it continues
  LaunchIdentity launch_;
  bool made_folder_ = false;  ///< removed again where this start gives up before it has claimed it
  std::optional<RunLock> lock_;
  std::optional<CheckpointStore::Found> found_;
  BatchSizesOfRun batch_sizes_;
  bool same_batches_ = true;      ///< as in the run that is continued, as far as is known
  std::string histories_digest_;  ///< empty until they are checked
  std::optional<int64_t> safe_step_;
  nlohmann::ordered_json initial_weights_;  ///< null where they are drawn

  /// A save that failed.
  struct Missed {
    int64_t step;
    std::string reason;
    int64_t bytes;  ///< that the save would have taken
    Deadline next_try;
    double pause_seconds;
    bool tried_again = false;
  };
  std::optional<Missed> missed_;
};

}  // namespace adtrain
