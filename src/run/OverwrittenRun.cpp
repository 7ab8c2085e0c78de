#include "run/OverwrittenRun.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "run/figures/RecordedRun.h"

namespace adtrain {

namespace fs = std::filesystem;

namespace {

/// By what a start writes into it, or an import: people, too, have folders with a config.yaml.
bool holds_run(const RunFolder& folder) {
  std::error_code unreadable;
  if (!fs::is_regular_file(folder.config(), unreadable)) return false;
  return fs::is_regular_file(folder.record(), unreadable) ||
         fs::is_symlink(folder.checkpoints() / "latest", unreadable);
}

}  // namespace

void refuse_run_within_run(const RunFolder& folder, const std::string& key) {
  std::error_code unreadable;
  fs::path whole = fs::weakly_canonical(fs::absolute(folder.root, unreadable), unreadable);
  if (unreadable) return;                                  // whoever writes there says so
  if (!whole.has_filename()) whole = whole.parent_path();  // a slash stays at the end
  for (fs::path above = whole; above.has_relative_path(); above = above.parent_path()) {
    const RunFolder run{above.parent_path()};
    const auto deleted = {run.checkpoints(), run.evaluation(),  run.scores(),
                          run.throughput(),  run.tensorboard(), run.profile()};
    if (std::ranges::find(deleted, above) == deleted.end() || !holds_run(run)) continue;
    throw ConfigError(
        fmt::format("{}: found {}, which lies in {}, where the run {} deletes what it no longer needs; "
                    "expected a folder outside of it: choose another name, and move what is there already",
                    key, folder.root.string(), above.string(), run.root.string()));
  }
}

void refuse_overwritten_weights(const RunConfig& config, const RunFolder& overwritten) {
  const auto& init_from = config.training.init_from;
  if (!init_from) return;
  // What else lies in the run's folder stays: weights that were exported there, for example.
  const bool is_run = is_within(overwritten.root, *init_from) && is_within(*init_from, overwritten.root);
  if (!is_run && !is_within(*init_from, overwritten.checkpoints())) return;
  throw ConfigError(
      fmt::format("init_from: found {}, which --overwrite deletes; choose another --set run_name=…, or copy "
                  "the weights to another folder and name that",
                  *init_from));
}

void delete_training(const RunFolder& folder) {
  fs::remove(folder.state());
  // Before the weights that they tell of, which they must not outlive.
  for (const fs::path& results : evaluation_folders(folder)) fs::remove_all(results);
  for (const fs::path& results : {folder.evaluation(), folder.scores(), folder.throughput()})
    fs::remove_all(results);
  // A folder cannot be deleted atomically, so it first gets a name under which nobody takes it for
  // checkpoints.
  fs::remove_all(folder.overwritten());
  if (fs::exists(folder.checkpoints())) fs::rename(folder.checkpoints(), folder.overwritten());
  fs::remove(folder.metrics());
  fs::remove(folder.tasks());
  fs::remove(folder.metrics().replace_extension(".prom"));
  for (const char* ending : {".svg", ".png"}) fs::remove(folder.loss_curve().concat(ending));
  for (int64_t number = 1; fs::remove(folder.former_config(number)); ++number) {
  }
  fs::remove_all(folder.overwritten());
}

void delete_temporaries(const RunFolder& folder) {
  // Of the lock there may be one of a process that asks for it at this moment.
  const std::string of_lock = folder.lock().filename().string() + ".";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.root)) {
    if (!is_temporary(entry.path()) || entry.path().filename().string().starts_with(of_lock)) continue;
    fs::remove(entry.path());
  }
}

void delete_run(const RunFolder& folder) {
  delete_training(folder);
  delete_temporaries(folder);
  for (const fs::path& records : {folder.tensorboard(), folder.profile()}) fs::remove_all(records);
  for (const char* ending : {".json", ".svg", ".png"}) fs::remove(folder.batch_sizes().concat(ending));
  for (const fs::path& record : {folder.failure(), folder.requeue(), folder.record(), folder.config()})
    fs::remove(record);
}

}  // namespace adtrain
