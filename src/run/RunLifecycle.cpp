#include "run/RunLifecycle.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "base/WriteRemedy.h"
#include "launch/StopCode.h"
#include "run/OverwrittenRun.h"
#include "run/RunRecord.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBatchSizesFound = "batch_sizes_found";
constexpr double kFirstPauseSeconds = 5, kLongestPauseSeconds = 60;  ///< between attempts of a failed save

/// Runs an action that may fail for reasons that the user can fix.
template <class Action>
void writing(const fs::path& folder, const Action& action) {
  try {
    action();
  } catch (const fs::filesystem_error& error) {
    throw EnvironmentError(
        fmt::format("{}; a run writes to its folder, {}: {}, or choose another by --set runs_dir=…",
                    error.what(), folder.string(), write_remedy(error, folder)));
  }
}

std::string ranks_text(int64_t count) {
  return fmt::format("{} rank{}", count, count == 1 ? "" : "s");
}

std::string resumed_text(int64_t step, int64_t saved_by, int64_t world_size, bool same_batches) {
  std::string text = fmt::format("resuming after step {}", step);
  if (saved_by == world_size) return text;
  text += fmt::format(", saved by a run of {} where this one has {}", ranks_text(saved_by),
                      ranks_text(world_size));
  return same_batches ? text + "; the global batches stay the same" : text;
}

/// "" where the manifest has no such text.
std::string text_in(const nlohmann::json& state, const char* name) {
  const auto found = state.find(name);
  return found != state.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t bytes_of(const Snapshot& snapshot) {
  int64_t bytes = 0;
  for (const auto* tensors : {&snapshot.model, &snapshot.optimizer}) {
    for (const NamedTensor& named : *tensors) bytes += static_cast<int64_t>(named.tensor.nbytes());
  }
  return bytes;
}

/// Figures that were written by the folder's path before anybody saw that the folder is not there any more:
/// they have made one that is no run. Where there are none, a folder in its place is somebody else's and
/// stays.
void remove_figures_of_no_run(const RunFolder& folder) {
  for (const fs::path& of_a_run : {folder.config(), folder.record(), folder.checkpoints()})
    if (!is_absent(of_a_run)) return;
  bool any = false;
  std::error_code ignored;
  for (const fs::path& figure : {folder.metrics().replace_extension(".prom"),
                                 folder.loss_curve().concat(".svg"), folder.loss_curve().concat(".png")}) {
    if (fs::remove(figure, ignored)) any = true;
  }
  if (any && !fs::is_symlink(folder.root, ignored)) fs::remove(folder.root, ignored);  // where it is empty
}

std::string safe_text(const std::optional<int64_t>& step) {
  return step ? fmt::format("step {} is safe", *step) : "no step is saved yet";
}

}  // namespace

RunLifecycle::RunLifecycle(const RunConfig& config, const Wish& wish, const Ranks& ranks, Console& console)
    : config_(config),
      wish_(wish),
      context_(ranks.context),
      root_(ranks.communicator->is_root()),
      world_size_(ranks.communicator->world_size()),
      device_(ranks.device.device.is_cuda() ? ranks.device.name : "CPU"),
      console_(console),
      folder_(config.folder()),
      checkpoints_(folder_.checkpoints(), config.training.keep_checkpoints),
      batch_sizes_were_found_(config.training.train_batch_size == kAutoBatchSize),
      launch_(LaunchIdentity::of_this_launch(ranks.context, *ranks.communicator)) {
  if (!root_) return;
  Activity::of_this_process().begin("claiming the run's folder");
  try {
    writing(folder_.root, [&] {
      made_folder_ = fs::create_directories(folder_.root);
      lock_.emplace(folder_.lock(), launch_, world_size_, RunLock::Patience(),
                    [this](const std::string& line) { console_.notice(line); });
    });
    decide();
    if (wish_.resume) find_checkpoint();
  } catch (...) {
    give_back();
    throw;
  }
}

RunLifecycle::~RunLifecycle() {
  give_back();
}

void RunLifecycle::give_back() {
  lock_.reset();
  std::error_code not_empty;
  if (made_folder_) fs::remove(folder_.root, not_empty);
}

void RunLifecycle::decide() {
  const int64_t restarts = context_.restart_count;
  const std::optional<RunState> state = RunState::read(folder_.state());
  // Each of torchrun's agents counts the restarts that its own ranks have caused: rank 0's may have counted
  // none, where the run has not come to an end. A SLURM job may have several steps, so there the count
  // decides.
  const bool uncounted = state && state->stage == RunState::Stage::kTraining;
  const bool may_be_restart = restarts > 0 || (uncounted && context_.launcher != Launcher::kSlurm);
  if (may_be_restart && state && state->launch.same_launch(launch_)) {
    console_.notice(fmt::format("restart {}by {} continues what an earlier attempt has begun",
                                restarts > 0 ? fmt::format("{} ", restarts) : "",
                                launcher_name(context_.launcher)));
    wish_.resume = !checkpoints_.empty();
    wish_.overwrite = false;  // what was to be deleted is deleted
    return;
  }
  if (restarts > 0) {
    console_.notice(
        fmt::format("restart {} by {}, which has begun no run here: it starts as if it were the first",
                    restarts, launcher_name(context_.launcher)));
  }
  if (wish_.resume && checkpoints_.empty()) {
    if (!wish_.overwrite) {
      throw CheckpointError(
          fmt::format("--resume: no step of {} is saved yet, there is none in {}; start it without --resume",
                      folder_.root.string(), folder_.checkpoints().string()));
    }
    console_.notice("no step is saved yet: the run starts anew, as --overwrite says");
    wish_.resume = false;
  }
  if (wish_.overwrite && !wish_.resume) refuse_overwritten_weights(config_, folder_);
  if (wish_.resume || wish_.overwrite || checkpoints_.empty()) return;
  throw ConfigError(
      fmt::format("{} holds a run with checkpoints already; continue it with --resume, start it anew with "
                  "--overwrite, or choose another --set run_name=…",
                  folder_.root.string()));
}

void RunLifecycle::find_checkpoint() {
  found_ = checkpoints_.newest();
  for (const std::string& reason : found_->passed_over) console_.warn("passed over a checkpoint: " + reason);
  safe_step_ = found_->snapshot.step;
  compare_configuration();
}

int64_t RunLifecycle::ranks_that_saved() const {
  const auto saved_by = found_->snapshot.state.find("world_size");
  const bool known = saved_by != found_->snapshot.state.end() && saved_by->is_number_integer();
  return known ? saved_by->get<int64_t>() : world_size_;
}

void RunLifecycle::compare_configuration() {
  const nlohmann::json& state = found_->snapshot.state;
  std::string earlier = text_in(state, "configuration");
  if (earlier.empty() && fs::exists(folder_.config())) earlier = read_file(folder_.config());
  if (earlier.empty()) {
    console_.warn(fmt::format("{} does not say with which configuration it was trained: it is taken on trust",
                              found_->path.string()));
    return;
  }
  if (text_in(state, "configuration_hash") == config_.fingerprint() && ranks_that_saved() == world_size_)
    return;
  const auto found = state.find(kBatchSizesFound);
  batch_sizes_ = BatchSizesOfRun::kept(
      config_.training,
      {read_leniently(earlier).training, ranks_that_saved(), found != state.end() && *found == true},
      world_size_);
  const std::vector<ConfigChange> changes =
      changes_between(earlier, ranks_that_saved(), config_, world_size_);
  refuse_other_meaning(changes, wish_.allowed_changes, folder_.root.string());
  for (const ConfigChange& change : changes) {
    same_batches_ = same_batches_ && (change.free || change.key != "global_batch_size");
    if (change.free) {
      console_.info("changed: " + change.text());
    } else {
      console_.warn(fmt::format("changed, as --allow-changes says: {}", change.text()));
    }
  }
}

void RunLifecycle::check_histories(const std::string& digest) {
  // The key with which a user chooses them.
  const char* const kHistories = config_.data.histories ? "histories" : "traj_dir";
  histories_digest_ = digest;
  if (!found_) return;
  const std::string before = text_in(found_->snapshot.state, "histories_digest");
  if (before.empty() || before == digest) return;
  const std::string change =
      fmt::format("digest {} in the run, {} now ({})", before, digest, config_.histories());
  if (std::ranges::find(wish_.allowed_changes, kHistories) != wish_.allowed_changes.end()) {
    console_.warn("other histories, as --allow-changes says: " + change);
    return;
  }
  throw ConfigError(fmt::format(
      "{} was trained on other histories: {}. Bring those back, start another run by --set run_name=…, or go "
      "on with these all the same with --allow-changes {}",
      folder_.root.string(), change, kHistories));
}

nlohmann::json RunLifecycle::origin() const {
  nlohmann::json origin = {{"configuration", config_.resolved_yaml()},
                           {"configuration_hash", config_.fingerprint()},
                           {"model", config_.model.architecture()},
                           {"world_size", world_size_}};
  if (batch_sizes_were_found_) origin[kBatchSizesFound] = true;
  if (!histories_digest_.empty()) origin["histories_digest"] = histories_digest_;
  return origin;
}

/// Says what is safe, where the folder is not in its place any more.
void RunLifecycle::check_folder(void (RunLock::*check)() const) const {
  try {
    ((*lock_).*check)();
  } catch (const FolderLost& lost) {
    remove_figures_of_no_run(folder_);
    throw EnvironmentError(
        safe_step_ ? fmt::format("{}. The checkpoints up to step {} lie where it was moved to: move it back "
                                 "to {} and go on with --resume; if it was deleted, start again",
                                 lost.what(), *safe_step_, folder_.root.string())
                   : fmt::format("{}. No step is saved yet: start again", lost.what()));
  }
}

void RunLifecycle::claim() {
  if (!root_) return;
  check_folder(&RunLock::check);
  writing(folder_.root, [&] { rewrite(); });
  made_folder_ = false;  // it holds a run now: an empty folder in its place would be somebody else's
  lock_->guard({folder_.config(), folder_.record()});
  if (!found_) return;
  console_.info(resumed_text(found_->snapshot.step, ranks_that_saved(), world_size_, same_batches_));
}

/// Whether the run that is continued is past the last step that this start asks for. At that step itself it
/// is not: nothing is trained then either, but the configuration is that of the run as it ends.
bool RunLifecycle::is_past_its_end() const {
  return found_ && found_->snapshot.step > config_.training.train_timesteps;
}

/// Writes state.json last: a restart may rely on all files written before it.
void RunLifecycle::rewrite() {
  if (wish_.overwrite && !wish_.resume) delete_training(folder_);
  fs::remove_all(folder_.overwritten());
  delete_temporaries(folder_);
  if (wish_.resume) {
    if (!is_past_its_end()) keep_former_configuration();
  } else {  // Also what a start has recorded that died before its first checkpoint.
    fs::remove_all(folder_.tensorboard());
    fs::remove_all(folder_.profile());
  }
  fs::remove(folder_.failure());
  fs::remove(folder_.requeue());
  if (!is_past_its_end() || !fs::exists(folder_.config())) {
    write_file_atomically(folder_.config(), config_.resolved_yaml());
    record_start(folder_, config_,
                 {.after_step = safe_step_.value_or(0),
                  .launcher = launcher_name(context_.launcher),
                  .ranks = world_size_,
                  .device = device_},
                 /*continues=*/wish_.resume, initial_weights_);
  } else {
    console_.notice(
        fmt::format("the run is at step {}, and train_timesteps is {}: nothing is trained, and {} stays as "
                    "it is",
                    found_->snapshot.step, config_.training.train_timesteps, folder_.config().string()));
  }
  write_state(RunState::Stage::kTraining, safe_step_.value_or(0));
}

void RunLifecycle::keep_former_configuration() const {
  if (!fs::exists(folder_.config())) return;
  const std::string former = read_file(folder_.config());
  if (former == config_.resolved_yaml()) return;
  int64_t number = 1;
  while (fs::exists(folder_.former_config(number))) ++number;
  write_file_atomically(folder_.former_config(number), former);
  console_.info(
      fmt::format("the run's former configuration is kept as {}", folder_.former_config(number).string()));
}

void RunLifecycle::save(const Snapshot& snapshot, bool leaving) {
  check_folder(&RunLock::check);
  try {
    for (const std::string& warning : checkpoints_.save(snapshot)) {
      console_.warn(fmt::format("step {} is saved, but {}", snapshot.step, warning));
    }
    safe_step_ = snapshot.step;
    missed_.reset();
    console_.info(fmt::format("saved the checkpoint of step {}", snapshot.step));
  } catch (const CheckpointError& error) {
    const bool again = missed_ && missed_->tried_again;
    const double pause =
        missed_ ? std::min(2 * missed_->pause_seconds, kLongestPauseSeconds) : kFirstPauseSeconds;
    missed_ = {.step = snapshot.step,
               .reason = error.what(),
               .bytes = bytes_of(snapshot),
               .next_try = Deadline(pause),
               .pause_seconds = pause};
    // At the end of the run end() reports it; for attempts in between one warning is enough.
    if (leaving || again) return;
    // Hours of training must not end because a disk is full.
    console_.warn(
        fmt::format("step {} was NOT saved, and {}; training continues and saves as soon as it can: {}",
                    snapshot.step, safe_text(safe_step_), error.what()));
  }
}

void RunLifecycle::measured(int64_t step, const ReturnFigures& figures) {
  if (!config_.training.keep_best || !figures.held_out) return;
  if (safe_step_ != step) {
    console_.warn(fmt::format("step {} is not saved, so it cannot be kept as the best one", step));
    return;
  }
  check_folder(&RunLock::check);
  const BestCheckpoint candidate{step, figures.held_out->last_ten, figures.measured_on};
  const std::optional<BestCheckpoint> best = checkpoints_.best();
  const bool comparable = best && best->measured == candidate.measured;
  if (comparable && best->held_out_return >= candidate.held_out_return) return;
  if (best && !comparable) {
    console_.notice(
        fmt::format("step {} was the best with other settings of the returns; its figure does not "
                    "compare with those of now, and the best one is chosen anew",
                    best->step));
  }
  console_.info(fmt::format("step {} has the best in-context return on held-out tasks so far", step));
  for (const std::string& warning : checkpoints_.keep_best(candidate)) {
    console_.warn(fmt::format("step {} is the best, but {}", step, warning));
  }
}

bool RunLifecycle::wants_step() {
  check_folder(&RunLock::check_as_last_seen);
  if (!missed_ || !missed_->next_try.passed()) return false;
  missed_->next_try = Deadline(missed_->pause_seconds);
  std::error_code unknown;
  const fs::space_info space = fs::space(folder_.root, unknown);
  missed_->tried_again = unknown || space.available > static_cast<uintmax_t>(missed_->bytes);
  return missed_->tried_again;
}

void RunLifecycle::confirm(int64_t step) {
  try {
    checkpoints_.verify(step);
    safe_step_ = step;
  } catch (const CheckpointError& error) {
    safe_step_ = checkpoints_.newest_verified();
    throw CheckpointError(
        fmt::format("step {} was NOT saved: {}. {}", step,
                    missed_ && missed_->step == step ? missed_->reason : error.what(),
                    safe_step_ ? fmt::format("Step {} is safe: --resume goes on from there", *safe_step_)
                               : "No step of this run is safe: start it again"));
  }
}

void RunLifecycle::write_state(RunState::Stage stage, int64_t step) const {
  RunState{.stage = stage, .step = step, .launch = launch_, .attempt = context_.restart_count}.write(
      folder_.state());
}

ExitCode RunLifecycle::end(Trainer::End how, int64_t step) {
  const ExitCode code = how == Trainer::End::kFinished ? ExitCode::kDone : stop_code(context_.launcher);
  if (!root_) return code;
  check_folder(&RunLock::check);
  confirm(step);
  const bool finished = how == Trainer::End::kFinished;
  try {
    if (!finished) write_file_atomically(folder_.requeue(), "");
    write_state(finished ? RunState::Stage::kFinished : RunState::Stage::kStopped, step);
  } catch (const fs::filesystem_error& error) {
    const bool code_says_it = finished || code == ExitCode::kRequeue || fs::exists(folder_.requeue());
    const std::string fault = fmt::format("step {} is saved, but {}", step, error.what());
    if (!code_says_it) throw CheckpointError(fault + ": nothing says that the run is to be continued");
    console_.warn(fault);
  }
  return code;
}

}  // namespace adtrain
