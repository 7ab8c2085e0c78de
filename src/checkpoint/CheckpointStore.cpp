#include "checkpoint/CheckpointStore.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Clock.h"
#include "base/Error.h"
#include "base/Fault.h"
#include "base/File.h"
#include "base/SymbolicLink.h"
#include "base/Text.h"
#include "base/WriteRemedy.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/Safetensors.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kPrefix = Manifest::kFolderPrefix;
constexpr std::string_view kTemporary = ".tmp";
constexpr const char* kLatest = "latest";
constexpr const char* kBest = "best";

fs::path with_suffix(fs::path path, std::string_view suffix) {
  return path += suffix;
}

bool is_leftover(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(kTemporary) &&
         (name.starts_with(kPrefix) || name.starts_with(kLatest) || name.starts_with(kBest));
}

/// Runs actions whose failure leaves the checkpoint usable, and collects a warning for each that fails.
class Attempt {
 public:
  explicit Attempt(std::vector<std::string>& warnings) : warnings_(warnings) {}
  template <class Action>
  void operator()(const char* what, const Action& action) const {
    try {
      action();
    } catch (const fs::filesystem_error& error) {
      warnings_.push_back(fmt::format("{}: {}", what, error.what()));
    }
  }

 private:
  std::vector<std::string>& warnings_;
};

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, int64_t keep)
    : folder_(std::move(folder)), keep_(std::max<int64_t>(2, keep)) {}

std::vector<std::string> CheckpointStore::save(const Snapshot& snapshot) {
  std::vector<std::string> warnings;
  const Attempt attempt(warnings);
  const fs::path written = with_suffix(path_of(snapshot.step), kTemporary);
  try {
    fs::create_directory(folder_);
    attempt("what a killed run left was not deleted", [&] { remove_leftovers(); });
    write(snapshot, written);
    verify_files(written);
    if (std::string kept = keep_misnamed(snapshot.step); !kept.empty()) warnings.push_back(std::move(kept));
    put_in_place(written, snapshot.step);
  } catch (const fs::filesystem_error& error) {
    const std::string remedy = write_remedy(error, folder_);  // before the half-written files are deleted
    remove_half_written(written);
    throw CheckpointError(fmt::format("{}; {}{}", error.what(),
                                      holds_any() ? "the older checkpoints are untouched: " : "", remedy));
  } catch (...) {
    remove_half_written(written);
    throw;
  }
  attempt("the link `latest` was not repointed to it", [&] { point_latest_to(snapshot.step); });
  attempt("the record of the best checkpoint was not deleted", [&] { forget_best_from(snapshot.step); });
  attempt("the link `best` was not repointed", [&] { point_link_to_best(); });
  attempt("older checkpoints were not deleted", [&] { prune(snapshot.step); });
  return warnings;
}

std::vector<std::string> CheckpointStore::keep_best(const BestCheckpoint& best) const {
  std::vector<std::string> warnings;
  const Attempt attempt(warnings);
  attempt("it was not recorded as the best", [&] {
    best.write(folder_);
    point_link_to_best();
  });
  attempt("older checkpoints were not deleted", [&] {
    const std::vector<int64_t> saved = steps_as_named();
    if (!saved.empty()) prune(saved.back());
  });
  return warnings;
}

std::optional<BestCheckpoint> CheckpointStore::best() const {
  const std::optional<BestCheckpoint> recorded = BestCheckpoint::read(folder_);
  if (!recorded || !fs::is_directory(path_of(recorded->step))) return std::nullopt;
  return fault_of_name(recorded->step).empty() ? recorded : std::nullopt;
}

/// The record decides; a run that was killed between both leaves an older link.
void CheckpointStore::point_link_to_best() const {
  const std::optional<BestCheckpoint> recorded = best();
  if (!recorded) return;
  const fs::path target = path_of(recorded->step).filename();
  std::error_code none;
  if (fs::read_symlink(folder_ / kBest, none) != target) point_link(folder_ / kBest, target);
}

void CheckpointStore::forget_best_from(int64_t step) const {
  const std::optional<BestCheckpoint> recorded = BestCheckpoint::read(folder_);
  if (!recorded || recorded->step < step) return;
  fs::remove(folder_ / kBest);
  fs::remove(folder_ / BestCheckpoint::kFileName);
}

void CheckpointStore::verify(int64_t step) const {
  verify_files(path_of(step));
}

void CheckpointStore::verify_files(const fs::path& checkpoint) {
  const Manifest manifest = Manifest::read(checkpoint);
  for (const char* name : {kModelFile, kOptimizerFile}) manifest.verify(checkpoint, name);
}

std::optional<int64_t> CheckpointStore::newest_verified() const {
  std::vector<int64_t> all = steps();
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      verify(*step);
      return *step;
    } catch (const CheckpointError&) {
      continue;
    }
  }
  return std::nullopt;
}

/// Half a checkpoint would only occupy the space that is lacking.
void CheckpointStore::remove_half_written(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

void CheckpointStore::remove_leftovers() const {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (is_leftover(entry.path())) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover);
}

void CheckpointStore::write(const Snapshot& snapshot, const fs::path& folder) const {
  fs::create_directory(folder);
  const Fault& fault = Fault::of_this_process();
  fault.at_moment_of_saving(SaveMoment::kFolder);
  Manifest manifest;
  manifest.step = snapshot.step;
  manifest.created = unix_seconds();
  manifest.state = snapshot.state;
  // Other programs read "format" to know how names map to tensors.
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"step", std::to_string(snapshot.step)}};
  for (const auto& [name, tensors] :
       {std::pair(kModelFile, &snapshot.model), std::pair(kOptimizerFile, &snapshot.optimizer)}) {
    FileWriter file(folder / name);
    Manifest::File& listed = manifest.files[name];
    uint32_t checksum = kChecksumOfNothing;
    stream_safetensors(*tensors, metadata, [&](std::string_view bytes) {
      file.append(bytes);
      listed.bytes += bytes.size();
      checksum = joined_checksum(checksum, checksum_by_threads(bytes.data(), bytes.size()), bytes.size());
    });
    file.flush();
    listed.crc32 = checksum_text(checksum);
  }
  fault.at_moment_of_saving(SaveMoment::kTensors);
  write_file(folder / Manifest::kFileName, manifest.text());
  flush_to_disk(folder);
  fault.at_moment_of_saving(SaveMoment::kManifest);
}

/// Empty where the name agrees with the manifest, and where that cannot be told.
std::string CheckpointStore::fault_of_name(int64_t step) const {
  try {
    return Manifest::read_under_any_name(path_of(step)).fault_of_name(path_of(step));
  } catch (const CheckpointError&) {
    return "";
  }
}

/// For errors, which no other may replace.
bool CheckpointStore::holds_any() const {
  try {
    return !empty();
  } catch (const std::exception&) {
    return false;
  }
}

/// What stands in the place of `step` and is of another step may be the only checkpoint of that one: it gets
/// a name under which nobody takes it for a checkpoint or for a leftover. Returns a warning; empty where
/// nothing of the kind stands there.
std::string CheckpointStore::keep_misnamed(int64_t step) const {
  const std::string fault = fault_of_name(step);
  if (fault.empty()) return "";
  const fs::path place = path_of(step);
  fs::path other = with_suffix(place, ".of-another-step");
  for (int64_t number = 2; fs::exists(other); ++number)
    other = with_suffix(place, fmt::format(".of-another-step-{}", number));
  fs::rename(place, other);
  return fmt::format("another stood in its place, which is {} now: {}", other.string(), fault);
}

/// A folder of the same step may exist already, skipped as damaged. A folder cannot replace another
/// atomically, so the old one is renamed first.
void CheckpointStore::put_in_place(const fs::path& written, int64_t step) const {
  const fs::path place = path_of(step);
  const fs::path aside = with_suffix(place, std::string(".replaced").append(kTemporary));
  const bool replaces = fs::exists(place);
  if (replaces) fs::rename(place, aside);
  try {
    rename_durably(written, place);
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    if (replaces) fs::rename(aside, place, ignored);
    throw;
  }
  Fault::of_this_process().at_moment_of_saving(SaveMoment::kRenamed);
  std::error_code left_for_the_next_save;
  fs::remove_all(aside, left_for_the_next_save);
}

void CheckpointStore::point_latest_to(int64_t step) const {
  point_link(folder_ / kLatest, path_of(step).filename());
  Fault::of_this_process().at_moment_of_saving(SaveMoment::kLatest);
}

/// A folder cannot be deleted atomically: it first gets a name under which nobody takes it for a checkpoint.
void CheckpointStore::prune(int64_t newest) const {
  const std::vector<int64_t> all = steps_as_named();
  std::vector<int64_t> kept = all;
  std::erase_if(kept, [newest](int64_t step) { return step > newest; });
  if (std::ssize(kept) > keep_) kept.erase(kept.begin(), kept.end() - keep_);
  const std::optional<BestCheckpoint> best = this->best();
  for (const int64_t step : all) {
    if (std::ranges::binary_search(kept, step) || (best && best->step == step)) continue;
    const fs::path doomed = with_suffix(path_of(step), std::string(".pruned").append(kTemporary));
    fs::rename(path_of(step), doomed);
    Fault::of_this_process().at_moment_of_saving(SaveMoment::kPruning);
    fs::remove_all(doomed);
  }
}

CheckpointStore::Found CheckpointStore::newest(CheckpointPart part) const {
  std::vector<int64_t> all = steps();
  std::ranges::reverse(all);
  std::vector<std::string> reasons;
  for (auto step = all.begin(); step != all.end(); ++step) {
    try {
      Found found{load(path_of(*step), part), path_of(*step), reasons};
      for (auto lower = std::next(step); lower != all.end(); ++lower) {
        std::string fault = fault_of_name(*lower);
        if (!fault.empty()) found.passed_over.push_back(std::move(fault));
      }
      return found;
    } catch (const CheckpointError& error) {
      reasons.emplace_back(error.what());
    }
  }
  if (reasons.empty()) {
    throw CheckpointError(
        fmt::format("no checkpoint in {}; expected a folder step-N there: train first", folder_.string()));
  }
  throw CheckpointError(
      fmt::format("no usable checkpoint in {}:\n  {}", folder_.string(), join(reasons, "\n  ")));
}

Snapshot CheckpointStore::load(const fs::path& checkpoint, CheckpointPart part) {
  const Manifest manifest = Manifest::read(checkpoint);
  const auto tensors = [&](const char* name) {
    return without_wrapper(
        parse_safetensors(manifest.read_verified(checkpoint, name), checkpoint / name).tensors);
  };
  return {.step = manifest.step,
          .model = tensors(kModelFile),
          .optimizer = part == CheckpointPart::kAll ? tensors(kOptimizerFile) : std::vector<NamedTensor>(),
          .state = manifest.state};
}

std::vector<NamedTensor> CheckpointStore::without_wrapper(std::vector<NamedTensor> tensors) {
  constexpr std::string_view kWrapper = "module.";
  for (NamedTensor& named : tensors) {
    if (named.name.starts_with(kWrapper)) named.name.erase(0, kWrapper.size());
  }
  return tensors;
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> found;
  std::error_code failed;
  const fs::directory_iterator entries(folder_, failed);
  if (failed && failed != std::errc::no_such_file_or_directory) {
    throw CheckpointError(fmt::format("{} cannot be read ({}); make it readable for this user",
                                      folder_.string(), failed.message()));
  }
  for (const auto& entry : entries) {
    const std::optional<int64_t> step = Manifest::step_in_name(entry.path());
    if (step && entry.is_directory()) found.push_back(*step);
  }
  std::ranges::sort(found);
  return found;
}

std::vector<int64_t> CheckpointStore::steps_as_named() const {
  std::vector<int64_t> found = steps();
  std::erase_if(found, [this](int64_t step) { return !fault_of_name(step).empty(); });
  return found;
}

fs::path CheckpointStore::path_of(int64_t step) const {
  return folder_ / fmt::format("{}{}", kPrefix, step);
}

}  // namespace adtrain
