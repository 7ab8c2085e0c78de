#include "run/InitialWeights.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/File.h"
#include "base/NearestPath.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/QuantisedTensors.h"
#include "checkpoint/Safetensors.h"
#include "checkpoint/TorchExport.h"
#include "run/ConfigChanges.h"
#include "run/OtherBlocks.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "init_from";
constexpr const char* kExpected =
    "expected the folder of a run or of one of its checkpoints, or a .safetensors file";

/// At most so many lines of a list, and how many more there are.
std::vector<std::string> first_of(const std::vector<std::string>& lines, size_t most) {
  if (lines.size() <= most) return lines;
  std::vector<std::string> shown(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(most));
  shown.push_back(fmt::format("and {} more", lines.size() - most));
  return shown;
}

nlohmann::ordered_json as_json(const std::vector<WeightTransfer::Difference>& differences) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, found, expected] : differences) list.push_back(name);
  return list;
}

}  // namespace

InitialWeights::InitialWeights(const RunConfig& config, const ParameterBuffer& wanted)
    : config_(config), named_(config.training.init_from.value()), path_(named_) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  std::error_code unreadable;
  if (!fs::exists(path_, unreadable)) {
    throw CheckpointError(fmt::format("{}: {} does not exist; {}{}", config.place_of(kKey), named_, kExpected,
                                      nearest_path(path_)));
  }
  if (fs::is_directory(path_)) {
    read_run_or_checkpoint();
  } else {
    read_file_alone();
  }
  if (hold_quantised(tensors_)) {
    throw CheckpointError(fmt::format(
        "{}: the weights of {} are quantised, and training begins with weights as they are; expected the "
        "run that they were quantised from",
        config.place_of(kKey), named_));
  }
  transfer_ = WeightTransfer::between(tensors_, wanted.named(), /*same_spaces=*/config.model.is_plugin());
  const std::string settings = other_settings();
  if (!settings.empty() || !transfer_.faults.empty()) refuse_other_network(settings);
}

void InitialWeights::read_run_or_checkpoint() {
  CheckpointStore::Found found = [&] {
    try {
      return CheckpointTarget(path_).newest();
    } catch (const CheckpointError& error) {
      throw CheckpointError(fmt::format("{}: {}", config_.place_of(kKey), error.what()));
    }
  }();
  for (const std::string& reason : found.passed_over)
    notices_.push_back("passed over a checkpoint: " + reason);
  // Of the links latest and best, what they point to.
  path_ = found.path.parent_path() / fs::canonical(found.path).filename();
  step_ = found.snapshot.step;
  crc32_ = Manifest::read(path_).files.at(CheckpointStore::kModelFile).crc32;
  configuration_ = configuration_in(found.snapshot.state);
  tensors_ = std::move(found.snapshot.model);
}

void InitialWeights::read_file_alone() {
  if (path_.filename() == CheckpointStore::kModelFile &&
      fs::exists(path_.parent_path() / Manifest::kFileName)) {
    path_ = path_.parent_path();
    return read_run_or_checkpoint();
  }
  if (is_named_as_torch_file(path_)) {
    throw CheckpointError(fmt::format(
        "{}: found {}, a file of PyTorch's; {}: adtrain checkpoint import {} --out runs/imported makes a run "
        "of it, then init_from: runs/imported",
        config_.place_of(kKey), named_, kExpected, path_.string()));
  }
  try {
    const FileContent content(path_);
    SafetensorsFile file = parse_safetensors(content, path_);
    crc32_ = checksum_text(content.checksum());
    step_ = file.step();
    tensors_ = CheckpointStore::without_wrapper(std::move(file.tensors));
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(fmt::format("{}: {}; {}", config_.place_of(kKey), error.what(), kExpected));
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("{}: {}; {}", config_.place_of(kKey), error.what(), kExpected));
  }
}

std::string InitialWeights::other_settings() {
  if (configuration_.empty()) {
    notices_.push_back(
        fmt::format("{} does not say with which configuration it was trained: that it has {} heads is taken "
                    "on trust, and so is all else that no shape shows",
                    path_.string(), config_.model.tf_n_head));
    return "";
  }
  const RunConfig source = read_leniently(configuration_);
  const std::vector<std::string> lines = other_blocks(source, config_);
  if (lines.empty() && source.model.layout() != config_.model.layout()) {
    notices_.push_back(
        "tokens hold something else than in the run of these weights (token_layout): the blocks have to "
        "learn that anew");
  }
  return join(lines, "\n  ");
}

void InitialWeights::refuse_other_network(const std::string& settings) const {
  constexpr size_t kMostLines = 8;
  std::vector<std::string> lines = first_of(transfer_.faults, kMostLines);
  if (!settings.empty()) lines.insert(lines.begin(), settings);
  throw ConfigError(fmt::format(
      "{}: the weights of {} are of another network than this configuration's:\n  {}\nSet the network as it "
      "is in the weights{}, or leave init_from out to begin anew. Only what depends on the tasks' spaces "
      "(encoders, heads) may differ",
      config_.place_of(kKey), path_.string(), join(lines, "\n  "),
      configuration_.empty() ? "" : fmt::format(" ({})", summary_of_configuration(configuration_))));
}

std::vector<std::string> InitialWeights::report() const {
  constexpr size_t kMostLines = 24;
  std::vector<std::string> lines = {
      fmt::format("init_from {}: {}{}, CRC-32 {}; {} of {} tensors are taken", named_, path_.string(),
                  step_ ? fmt::format(" (step {})", *step_) : "", crc32_, transfer_.taken.size(),
                  transfer_.taken.size() + transfer_.fresh.size())};
  for (const std::string& line : first_of(transfer_.lines(), kMostLines)) lines.push_back("  " + line);
  for (const std::string& notice : notices_) lines.push_back("notice: " + notice);
  return lines;
}

nlohmann::ordered_json InitialWeights::record() const {
  return {{"path", named_},
          {"checkpoint", fs::absolute(path_).lexically_normal().string()},
          {"step", step_ ? nlohmann::ordered_json(*step_) : nlohmann::ordered_json(nullptr)},
          {"crc32", crc32_},
          {"taken", transfer_.taken.size()},
          {"new", as_json(transfer_.fresh)},
          {"left_out", as_json(transfer_.left_out)}};
}

}  // namespace adtrain
