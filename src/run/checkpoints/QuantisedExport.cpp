#include "run/checkpoints/QuantisedExport.h"

#include <memory>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "base/WriteRemedy.h"
#include "checkpoint/QuantisedTensors.h"
#include "checkpoint/Safetensors.h"
#include "checkpoint/TensorStatistics.h"
#include "checkpoint/TorchExport.h"
#include "model/AlgorithmDistillation.h"
#include "run/LoadedNetwork.h"
#include "run/OtherBlocks.h"
#include "run/OverwrittenRun.h"
#include "run/RunConfig.h"
#include "run/TrainedRun.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// The network's parameters as a file has them: quantised ones as bitsandbytes' tensors, all others in the
/// type of torch_dtype, or fp32.
std::vector<NamedTensor> tensors_of(const RunConfig& config, const Snapshot& snapshot) {
  const auto model = AlgorithmDistillation::to_be_loaded(config.model, config.model_shape(), /*seed=*/0);
  model->parameters().load(snapshot.model);
  const auto names = quantised_names(config, model->parameters());
  model->quantise(names, *config.quantisation.weights(), at::kCPU,
                  config.evaluation.chosen_type().value_or(at::kFloat));
  std::vector<NamedTensor> tensors;
  for (const auto& [name, leaf] : model->parameters().named_leaves()) {
    const QuantisedLinear* const linear = model->parameters().quantised(name);
    if (linear == nullptr) {
      tensors.push_back({name, leaf.detach()});
      continue;
    }
    for (NamedTensor& tensor : quantised_tensors(name, *linear->matrix)) tensors.push_back(std::move(tensor));
  }
  return tensors;
}

int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.tensor.nbytes());
  return bytes;
}

/// A run whose one checkpoint has these weights, and no optimizer's state.
void write_run(const fs::path& out, const fs::path& tasks, RunConfig config, Snapshot snapshot) {
  const RunFolder folder{out};
  refuse_run_within_run(folder, "--out");
  if (fs::exists(folder.config()) || fs::exists(folder.checkpoints()))
    throw ConfigError(fmt::format("--out: {} holds a run already; choose another folder", out.string()));
  config.run.run_name = out.filename().string();
  config.run.runs_dir = out.has_parent_path() ? out.parent_path().string() : ".";
  snapshot.optimizer.clear();
  snapshot.state["configuration"] = config.resolved_yaml();
  fs::create_directories(folder.root);
  CheckpointStore(folder.checkpoints(), config.training.keep_checkpoints).save(snapshot);
  write_file_atomically(folder.config(), config.resolved_yaml());
  if (fs::exists(tasks)) write_file_atomically(folder.tasks(), read_file(tasks));
}

}  // namespace

ExitCode export_quantised(const fs::path& target, const fs::path& given_out,
                          const std::vector<std::string>& overrides) {
  const TrainedRun trained = TrainedRun::at(target);
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(trained.folder.config(), overrides, notices);
  fs::path out = given_out.lexically_normal();
  if (out.filename().empty()) out = out.parent_path();
  if (!config.quantisation.is_on() && is_named_as_torch_file(out)) {
    throw ConfigError(
        "--set: found settings for weights as they are; leave it out, or add load_in_4bit=true or "
        "load_in_8bit=true and name FILE.safetensors or a folder by --out");
  }
  if (!config.quantisation.is_on()) {
    throw ConfigError(fmt::format(
        "--out: found {}, and weights as they are; expected FILE.pt, or --set load_in_4bit=true or --set "
        "load_in_8bit=true",
        out.string()));
  }
  const bool is_file = out.extension() == ".safetensors";
  if (is_named_as_torch_file(out)) {
    throw ConfigError(
        fmt::format("--out: found {} for quantised weights, whose form is that of safetensors; expected "
                    "FILE.safetensors, or the folder of a new run",
                    out.string()));
  }
  CheckpointStore::Found found = newest_of(target);
  if (hold_quantised(found.snapshot.model)) {
    throw ConfigError(fmt::format(
        "{}: its weights are quantised already; expected a run with the weights that were trained",
        found.path.string()));
  }
  refuse_other_blocks(config, found.snapshot.state, found.path);
  Snapshot snapshot = std::move(found.snapshot);
  // Codes of 4 bits hide a NaN, and in 8 bits weights may become infinite that were not.
  expect_finite(snapshot.model, found.path.string() + ": ");
  snapshot.model = tensors_of(config, snapshot);
  expect_finite(snapshot.model,
                fmt::format("{} in {}: ", found.path.string(), config.quantisation.weights()->name()));
  const int64_t step = snapshot.step, bytes = bytes_of(snapshot.model);
  try {
    if (is_file) {
      write_safetensors(out, snapshot.model, {{"format", "pt"}, {"step", std::to_string(step)}});
    } else {
      write_run(out, trained.folder.tasks(), config, std::move(snapshot));
    }
  } catch (const fs::filesystem_error& error) {
    throw EnvironmentError(fmt::format("{}; what --out names was not written: {}, or choose another place",
                                       error.what(),
                                       write_remedy(error, is_file ? fs::absolute(out).parent_path() : out)));
  }
  print_answer(fmt::format("{}: step {} of {}, weights in {}, {}{}\n", out.string(), step,
                           found.path.string(), config.quantisation.weights()->name(),
                           human_bytes(static_cast<double>(bytes)),
                           is_file ? "" : "; next: adtrain score " + out.string()));
  return ExitCode::kDone;
}

}  // namespace adtrain
