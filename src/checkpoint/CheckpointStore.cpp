#include "checkpoint/CheckpointStore.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/Clock.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/Safetensors.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kPrefix = "step-";

/// N of a folder named `step-N`; nothing for any other name.
std::optional<int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string_view digits = std::string_view(name).substr(std::min(name.size(), std::string_view(kPrefix).size()));
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), step);
  const bool whole = error == std::errc() && end == digits.end() && !digits.empty();
  return name.starts_with(kPrefix) && whole ? std::optional(step) : std::nullopt;
}

/// Names without the prefix that Python's data-parallel wrapper leaves.
std::vector<NamedTensor> without_wrapper(std::vector<NamedTensor> tensors) {
  constexpr std::string_view kWrapper = "module.";
  for (NamedTensor& tensor : tensors) {
    if (tensor.name.starts_with(kWrapper)) tensor.name.erase(0, kWrapper.size());
  }
  return tensors;
}

}  // namespace

CheckpointStore::CheckpointStore(fs::path folder, int64_t keep) : folder_(std::move(folder)), keep_(std::max<int64_t>(2, keep)) {}

void CheckpointStore::save(const Snapshot& snapshot) {
  try {
    fs::create_directories(folder_);
    write(snapshot);
    point_latest_to(snapshot.step);
    prune();
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(fmt::format("{}; older checkpoints in {} are untouched: free space there or mend its permissions",
                                      error.what(), folder_.string()));
  }
}

void CheckpointStore::write(const Snapshot& snapshot) const {
  const fs::path final_path = path_of(snapshot.step);
  fs::path temporary = final_path;
  temporary += ".tmp";
  fs::remove_all(temporary);
  fs::create_directory(temporary);
  try {
    Manifest manifest;
    manifest.step = snapshot.step;
    manifest.created = unix_seconds();
    manifest.state = snapshot.state;
    const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"step", std::to_string(snapshot.step)}};
    for (const auto& [name, tensors] : {std::pair(kModelFile, &snapshot.model), std::pair(kOptimizerFile, &snapshot.optimizer)}) {
      const std::string bytes = safetensors_bytes(*tensors, metadata);
      write_file(temporary / name, bytes);
      manifest.add_file(name, bytes);
    }
    write_file(temporary / Manifest::kFileName, manifest.text());
    flush_to_disk(temporary);
  } catch (const fs::filesystem_error&) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);  // a half-written folder would only eat the space that is missing
    throw;
  }
  fs::remove_all(final_path);  // the same step again, after resuming from an older checkpoint
  rename_durably(temporary, final_path);
}

void CheckpointStore::point_latest_to(int64_t step) const {
  const fs::path temporary = folder_ / "latest.tmp";
  fs::remove(temporary);
  fs::create_directory_symlink(path_of(step).filename(), temporary);
  rename_durably(temporary, folder_ / "latest");
}

void CheckpointStore::prune() const {
  const std::vector<int64_t> all = steps();
  for (size_t i = 0; i + static_cast<size_t>(keep_) < all.size(); ++i) fs::remove_all(path_of(all[i]));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.is_directory() && entry.path().extension() == ".tmp") fs::remove_all(entry.path());  // of a killed run
  }
}

CheckpointStore::Found CheckpointStore::newest() const {
  std::vector<int64_t> all = steps();
  std::reverse(all.begin(), all.end());
  std::vector<std::string> reasons;
  for (const int64_t step : all) {
    try {
      return {load(path_of(step)), path_of(step), reasons};
    } catch (const CheckpointError& error) {
      reasons.emplace_back(error.what());
    }
  }
  throw CheckpointError(reasons.empty()
                            ? fmt::format("no checkpoint in {}; expected a folder step-N there: train first", folder_.string())
                            : fmt::format("no usable checkpoint in {}:\n  {}", folder_.string(), join(reasons, "\n  ")));
}

Snapshot CheckpointStore::load(const fs::path& checkpoint) {
  const Manifest manifest = Manifest::read(checkpoint);
  manifest.verify(checkpoint);
  Snapshot snapshot;
  snapshot.step = manifest.step;
  snapshot.state = manifest.state;
  snapshot.model = without_wrapper(read_safetensors(checkpoint / kModelFile).tensors);
  snapshot.optimizer = without_wrapper(read_safetensors(checkpoint / kOptimizerFile).tensors);
  return snapshot;
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder_, missing)) {
    const std::optional<int64_t> step = step_of(entry.path());
    if (step && entry.is_directory()) found.push_back(*step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path CheckpointStore::path_of(int64_t step) const { return folder_ / (kPrefix + std::to_string(step)); }

}  // namespace adtrain
