#include "run/checkpoints/CheckpointTarget.h"

#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/StandardStreams.h"
#include "checkpoint/Manifest.h"
#include "run/ConfigChanges.h"
#include "run/RunFolder.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

const char* name_of(TransformerBlock block) {
  switch (block) {
    case TransformerBlock::kPostNorm:
      return "post-norm";
    case TransformerBlock::kGpt2:
      return "GPT-2";
    case TransformerBlock::kXland:
      return "xland";
    case TransformerBlock::kVintix:
      return "vintix";
    default:
      return "pre-norm";
  }
}

/// A store whose checkpoints are only read.
CheckpointStore store_in(const fs::path& checkpoints) {
  constexpr int64_t kAnyNumber = 2;  // nothing is saved, so nothing is pruned
  return {checkpoints, kAnyNumber};
}

CheckpointStore store_of(const fs::path& run) {
  return store_in(RunFolder{run}.checkpoints());
}

}  // namespace

CheckpointTarget::CheckpointTarget(fs::path folder) : folder_(std::move(folder)) {
  is_run_ = !fs::exists(folder_ / Manifest::kFileName);
  if (!is_run_) {
    checkpoints_ = {folder_};
    return;
  }
  const CheckpointStore store = store_of(folder_);
  for (const int64_t step : store.steps()) checkpoints_.push_back(store.path_of(step));
  if (checkpoints_.empty()) {
    throw CheckpointError(
        fmt::format("{} holds no checkpoint; expected the folder of a run that has saved one, such as "
                    "runs/quickstart, or a checkpoint's, such as runs/quickstart/checkpoints/step-1000",
                    folder_.string()));
  }
}

std::optional<BestCheckpoint> CheckpointTarget::best() const {
  return (is_run_ ? store_of(folder_) : store_in(fs::canonical(folder_).parent_path())).best();
}

CheckpointStore::Found CheckpointTarget::newest() const {
  if (is_run_) return store_of(folder_).newest();
  return {CheckpointStore::load(folder_), folder_, {}};
}

CheckpointStore::Found newest_of(const fs::path& target) {
  CheckpointStore::Found found = CheckpointTarget(target).newest();
  for (const std::string& reason : found.passed_over)
    print_error("warning: passed over a checkpoint: " + reason + "\n");
  return found;
}

std::string summary_of_configuration(const std::string& configuration) {
  if (configuration.empty()) return "";
  const RunConfig config = read_leniently(configuration);
  const ModelOptions& model = config.model;
  const bool is_varied = model.composed() && model.block() == TransformerBlock::kPreNorm;
  const std::string network = model.is_plugin()
                                  ? "a plug-in's network"
                                  : fmt::format("{}{} network{}", name_of(model.block()),
                                                model.compressed() ? " compressed-context" : "",
                                                is_varied ? " with other pieces or tokens" : "");
  return fmt::format("{}, width {}, {} layers, {} heads, n_transit {}; {}", network, model.tf_n_embd,
                     model.tf_n_layer, model.tf_n_head, model.n_transit, config.environment.env);
}

std::string configuration_in(const nlohmann::json& state) {
  const auto found = state.find("configuration");
  return found != state.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace adtrain
