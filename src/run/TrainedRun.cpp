#include "run/TrainedRun.h"

#include <charconv>
#include <string>
#include <system_error>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"
#include "checkpoint/CheckpointStore.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/QuantisedTensors.h"
#include "run/OtherBlocks.h"
#include "run/RunRecord.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// A folder among a run's checkpoints is one, or what is left of one.
bool is_among_checkpoints(const fs::path& path, const RunFolder& run) {
  return fs::is_directory(path) && path.parent_path() == run.checkpoints() && fs::exists(run.config());
}

bool is_same_run(const TrainedRun::Beginning& before, const TrainedRun::Beginning& now) {
  if (before.has_state && !now.has_state) return false;  // --overwrite is at work, or was killed
  if (before.first_start == now.first_start) return true;
  // An imported run has no start before it is trained further.
  return before.first_start.is_null() && now.first_start.is_object() &&
         now.first_start.value("after_step", nlohmann::ordered_json(0)) > 0;
}

}  // namespace

TrainedRun::Beginning TrainedRun::Beginning::of(const RunFolder& folder) {
  return {.first_start = adtrain::first_start(folder), .has_state = fs::exists(folder.state())};
}

TrainedRun TrainedRun::at(fs::path path) {
  path = path.lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  TrainedRun run;
  const RunFolder above{fs::path(path / ".." / "..").lexically_normal()};
  if (fs::exists(path / Manifest::kFileName) || is_among_checkpoints(path, above)) {
    Manifest::read(path);
    run.folder = above;
    run.checkpoint = path;
  } else {
    run.folder.root = path;
  }
  if (!fs::exists(run.folder.config())) {
    throw CheckpointError(fmt::format(
        "{} is neither a run nor one of its checkpoints: there is no {}; expected a folder such as "
        "runs/quickstart or runs/quickstart/checkpoints/step-1000",
        path.string(), run.folder.config().string()));
  }
  run.beginning = Beginning::of(run.folder);
  return run;
}

void TrainedRun::refuse_if_replaced(const fs::path& results) const {
  if (!is_within(results, folder.root) || is_same_run(beginning, Beginning::of(folder))) return;
  throw ConfigError(
      fmt::format("{} was replaced by another run (--overwrite) or deleted after its weights were loaded; "
                  "expected the same run, so nothing was written into {}: evaluate or score again, with the "
                  "weights that are there now",
                  folder.root.string(), results.string()));
}

int64_t TrainedRun::named_step() const {
  std::error_code absent;
  const fs::path named = checkpoint.value_or(folder.checkpoints() / "latest");
  if (!checkpoint && !fs::exists(named, absent)) {
    const std::vector<int64_t> steps = CheckpointStore(folder.checkpoints(), /*keep=*/1).steps_as_named();
    return steps.empty() ? 0 : steps.back();
  }
  const std::string name = fs::canonical(named, absent).filename().string();
  const std::string prefix = "step-";
  int64_t step = 0;
  if (name.starts_with(prefix)) std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return step;
}

Snapshot TrainedRun::read(const RunConfig& config, Console& console) const {
  constexpr auto kPart = CheckpointPart::kWeights;
  CheckpointStore::Found found =
      checkpoint ? CheckpointStore::Found{CheckpointStore::load(*checkpoint, kPart), *checkpoint, {}}
                 : CheckpointStore(folder.checkpoints(), config.training.keep_checkpoints).newest(kPart);
  for (const std::string& reason : found.passed_over) console.warn("passed over a checkpoint: " + reason);
  refuse_other_blocks(config, found.snapshot.state, found.path);
  return std::move(found.snapshot);
}

int64_t TrainedRun::load_weights(const RunConfig& config, Console& console, const Ranks& ranks,
                                 at::ScalarType type, AlgorithmDistillation& model) const {
  const at::NoGradGuard no_grad;
  Communicator& communicator = *ranks.communicator;
  ParameterBuffer& parameters = model.parameters();
  at::Tensor step = at::zeros({1}, at::kLong);
  if (communicator.is_root()) {
    const Snapshot snapshot = read(config, console);
    if (hold_quantised(snapshot.model)) {
      throw CheckpointError(
          fmt::format("the weights of {} are quantised; expected load_in_4bit or load_in_8bit: true, as its "
                      "config.yaml has it",
                      checkpoint.value_or(folder.root).string()));
    }
    parameters.load(snapshot.model);
    step.fill_(snapshot.step);
  }
  const at::Device device = ranks.device.device;
  if (type == at::kFloat) {
    parameters.to(device);
  } else {
    parameters.round(device, type);  // a GPU need not hold fp32 beside
  }
  at::Tensor bytes = parameters.flat().view(at::kByte);
  communicator.broadcast(bytes, 0);
  communicator.broadcast(step, 0);
  return step.item<int64_t>();
}

}  // namespace adtrain
