#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "base/Words.h"
#include "base/WriteRemedy.h"
#include "checkpoint/QuantisedTensors.h"
#include "checkpoint/Safetensors.h"
#include "checkpoint/TensorStatistics.h"
#include "checkpoint/TorchCheckpoint.h"
#include "memory/AutoBatchSize.h"
#include "model/AlgorithmDistillation.h"
#include "model/FrozenParameters.h"
#include "model/QuantisedNetwork.h"
#include "run/LoadedNetwork.h"
#include "run/OverwrittenRun.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/CheckpointTarget.h"
#include "run/checkpoints/ImportedConfig.h"
#include "run/checkpoints/ImportedNetwork.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kTransitionType = 0;

bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors";
}

/// A file of safetensors has weights alone, and may say of which step.
TorchCheckpoint read(const fs::path& path) {
  if (is_safetensors(path)) {
    SafetensorsFile stored = read_safetensors(path);
    TorchCheckpoint file;
    file.step = stored.step();
    file.model = std::move(stored.tensors);
    return file;
  }
  try {
    return TorchCheckpoint::parse(read_file(path), path);
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError(
        fmt::format("{}; expected a .pt file of torch.save, or .safetensors, there", error.what()));
  }
}

/// The projects' compressed context exists in two meanings, which neither names nor shapes nor settings tell
/// apart. Only one is a network here, and in files of ours.
void check_markers(const ImportRequest& request, const RunConfig& config, bool is_of_project) {
  if (!config.model.compressed()) return;
  if (request.markers == "beside" || (request.markers.empty() && !is_of_project)) return;
  if (request.markers == "replace") {
    throw ConfigError(
        "regions whose markers replace their first and last transition are another network, which is not "
        "here: train such a model anew, with markers beside the transitions");
  }
  throw ConfigError(
      fmt::format("found {}; this file was trained with compressed context, whose markers either replace "
                  "the first and last transition of a region (older commits) or stand beside them, as here. "
                  "The file does not say which: give --markers beside if its commit put them beside; the "
                  "older kind cannot be taken over",
                  request.markers.empty() ? "no --markers" : "--markers " + request.markers));
}

class Import {
 public:
  explicit Import(const ImportRequest& request) : request_(request), file_(read(request.file)) {}

  void run() {
    set_quantised_apart();
    if (request_.config.empty() && file_.config.empty()) file_.config = settings_of_folder();
    config_ = imported_config({file_.config, request_.config, request_.overrides,
                               settings_of_network(file_.model, request_.file), is_of_project()},
                              notices_);
    place();
    check_markers(request_, config_, is_of_project());
    fill_unused();
    fold_query_type();
    const Snapshot snapshot = this->snapshot();
    save(snapshot);
    report(snapshot);
  }

 private:
  /// Whether a Python project may have written it, which save .pt files alone: only in theirs something else
  /// was trained than names, shapes and settings say.
  bool is_of_project() const { return !file_.of_adtrain && !is_safetensors(request_.file); }

  /// Of the config.yaml that the projects write into the folder of a run's checkpoints.
  json settings_of_folder() {
    const fs::path folder = fs::absolute(request_.file).parent_path();
    for (const fs::path& candidate : {folder / "config.yaml", folder.parent_path() / "config.yaml"}) {
      if (!fs::is_regular_file(candidate)) continue;
      notices_.push_back(fmt::format("the file holds no configuration: {} is taken", candidate.string()));
      return settings_in(candidate);
    }
    throw ConfigError(
        fmt::format("{} holds no 'config', and there is no config.yaml beside it; expected the configuration "
                    "that it was trained with: give it by --config FILE.yaml",
                    request_.file.string()));
  }

  void place() {
    fs::path out = request_.out.empty() ? fs::path("runs") / request_.file.stem() : request_.out;
    out = out.lexically_normal();
    if (out.filename().empty()) out = out.parent_path();
    folder_.root = out;
    refuse_run_within_run(folder_, "--out");
    config_.run.run_name = out.filename().string();
    config_.run.runs_dir = out.has_parent_path() ? out.parent_path().string() : ".";
    if (fs::exists(folder_.config()) || fs::exists(folder_.checkpoints())) {
      throw ConfigError(fmt::format("{} holds a run already; choose another folder by --out", out.string()));
    }
  }

  /// The network is made as of a file with all its weights.
  void set_quantised_apart() {
    if (!hold_quantised(file_.model)) return;
    quantised_ = QuantisedTensors::of(std::move(file_.model), request_.file);
    file_.model = quantised_.others;
    for (NamedTensor& zeros : quantised_.places()) file_.model.push_back(std::move(zeros));
  }
  bool is_quantised() const { return !quantised_.matrices.empty(); }

  /// What the run's configuration asks for is what the file has.
  void put_quantisation(const ParameterBuffer& parameters) {
    const WeightQuantisation form = stored_form(quantised_.matrices, parameters, request_.file);
    QuantisationOptions& keys = config_.quantisation;
    if (const auto asked = keys.weights();
        asked && (asked->code != form.code || asked->double_quantisation != form.double_quantisation)) {
      throw ConfigError(
          fmt::format("{}: found what asks for {}, and {} is quantised as {}; expected its keys, or none",
                      config_.place_of(keys.key()), asked->name(), request_.file.string(), form.name()));
    }
    keys.load_in_8bit = form.code == QuantisedCode::int8;
    keys.load_in_4bit = !keys.load_in_8bit;
    if (keys.load_in_4bit) keys.quant_type = form.code;
    keys.use_double_quant = form.double_quantisation;
    put_skipped(parameters);
  }

  /// The same of layers that the file has as they are: what goes by the configuration alone counts them
  /// right.
  void put_skipped(const ParameterBuffer& parameters) {
    std::optional<std::string>& key = config_.quantisation.skip_modules;
    const std::string left = join(modules_left(parameters, quantised_.matrices), ",");
    if (skips_others(config_, parameters, quantised_.matrices)) {
      throw ConfigError(fmt::format(
          "{}: found '{}', and {} is quantised in all linear layers but heads{}; expected its keys, or none",
          config_.place_of("llm_int8_skip_modules"), abridged(*key), request_.file.string(),
          left.empty() ? "" : " and " + abridged(left)));
    }
    if (left.empty() || !trimmed(key.value_or("")).empty()) return;
    key = left;
    notices_.push_back(fmt::format("llm_int8_skip_modules = {}, which the file has as they are", left));
  }

  NamedTensor* find(std::vector<NamedTensor>& tensors, const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
    return found == tensors.end() ? nullptr : &*found;
  }

  /// Plain post-norm files may lack the parameters of compressed context, which plain networks never use.
  /// Token types of zeros add nothing.
  void fill_unused() {
    if (config_.model.compressed() || config_.model.block() != TransformerBlock::kPostNorm) return;
    const int64_t width = config_.model.tf_n_embd;
    const std::pair<const char*, std::vector<int64_t>> kUnused[] = {
        {"compress_start_token", {1, 1, width}},
        {"compress_end_token", {1, 1, width}},
        {"token_type_embedding.weight", {3, width}},
        {"pred_token_type.weight", {3, width}},
        {"pred_token_type.bias", {3}}};
    for (const auto& [name, shape] : kUnused) {
      if (find(file_.model, name) != nullptr) continue;
      file_.model.push_back({name, at::zeros(shape)});
      if (!file_.optimizer.empty()) {
        for (const char* moment : {"exp_avg.", "exp_avg_sq."})
          file_.optimizer.push_back({std::string(moment) + name, at::zeros(shape)});
      }
      notices_.push_back(fmt::format("{} is not in the file and not used: zeros", name));
    }
  }

  /// The query of compressed context has no token type here. Where the source added type 0 to it in training,
  /// its embedding takes that up, and the network computes the same.
  void fold_query_type() {
    const bool folds = request_.query_type.empty() ? config_.model.compressed() && is_of_project()
                                                   : request_.query_type == "0";
    if (!request_.query_type.empty() && request_.query_type != "0" && request_.query_type != "none")
      throw ConfigError(fmt::format("--query-type: found '{}'; expected 0 or none", request_.query_type));
    if (config_.model.compressed() && !file_.config.contains("token_type_weight") &&
        request_.config.empty() && std::ranges::none_of(request_.overrides, [](const auto& set) {
          return set.starts_with("token_type_weight");
        })) {
      config_.model.token_type_weight = 1.0;
      notices_.push_back(
          "token_type_weight = 1.0, as the newest commit has it; --set token_type_weight=… if not");
    }
    if (!folds) return;
    NamedTensor *query = find(file_.model, "embed_query_state.weight"),
                *types = find(file_.model, "token_type_embedding.weight");
    if (query == nullptr || types == nullptr) return;
    const at::NoGradGuard no_grad;
    query->tensor = query->tensor + types->tensor[kTransitionType];
    notices_.push_back(
        "the source added token type 0 to the query in training and not in evaluation: it is folded into "
        "embed_query_state, so the network is the one that was trained. Its next steps differ from the "
        "source's, where both embeddings learnt from the query (--query-type none leaves it)");
  }

  Snapshot snapshot() {
    const auto model = AlgorithmDistillation::to_be_loaded(config_.model, config_.model_shape(), /*seed=*/0);
    freeze(model->parameters(), config_.training.freeze.value_or(""), "freeze");
    model->parameters().load(file_.model);
    if (is_quantised()) put_quantisation(model->parameters());
    Snapshot snapshot;
    snapshot.step = file_.step.value_or(0);
    snapshot.model = model->parameters().named();
    const std::vector<std::string> frozen = model->parameters().frozen_names();
    if (is_quantised()) {
      snapshot.model = as_stored(std::move(snapshot.model));
    } else {
      snapshot.optimizer = optimizer(snapshot.model, frozen);
    }
    for (const auto* tensors : {&snapshot.model, &snapshot.optimizer})
      expect_finite(*tensors, request_.file.string() + ": ");
    const TrainingOptions& training = config_.training;
    const bool found = training.train_batch_size == kAutoBatchSize;
    const int64_t global = found ? 0
                                 : training.global_batch_size.value_or(training.train_batch_size *
                                                                       training.gradient_accumulation_steps);
    snapshot.state = {{"configuration", config_.resolved_yaml()},
                      {"configuration_hash", config_.fingerprint()},
                      {"world_size", 1},
                      {"samples_drawn", snapshot.step * global},
                      {"imported_from", request_.file.filename().string()}};
    if (!frozen.empty()) snapshot.state["frozen"] = frozen;
    if (!file_.step && !is_quantised())
      notices_.push_back("the file has no step: training would begin at step 0");
    if (file_.schedule_step && file_.schedule_step != file_.step) {
      notices_.push_back(
          fmt::format("the source's schedule stood at {} and its step at {}; here the rate follows the "
                      "step",
                      *file_.schedule_step, snapshot.step));
    }
    return snapshot;
  }

  /// With the file's tensors in the place of weights that it has quantised.
  std::vector<NamedTensor> as_stored(std::vector<NamedTensor> model) const {
    std::vector<NamedTensor> stored;
    for (NamedTensor& named : model) {
      const auto matrix = quantised_.matrices.find(named.name);
      if (matrix == quantised_.matrices.end()) {
        stored.push_back(std::move(named));
      } else {
        for (NamedTensor& tensor : quantised_tensors(named.name, matrix->second))
          stored.push_back(std::move(tensor));
      }
    }
    return stored;
  }

  /// In the order of the model; zeros where the file has no optimizer. Frozen parameters may have no moments.
  std::vector<NamedTensor> optimizer(const std::vector<NamedTensor>& model,
                                     const std::vector<std::string>& frozen) {
    if (file_.optimizer.empty()) notices_.push_back("the file has no optimizer: moments are zeros");
    std::vector<NamedTensor> tensors;
    const NamedTensor* step = find(file_.optimizer, "step");
    tensors.push_back({"step", step == nullptr ? at::zeros({}) : step->tensor});
    for (const std::string moment : {"exp_avg.", "exp_avg_sq."}) {
      for (const auto& [name, parameter] : model) {
        const NamedTensor* found = find(file_.optimizer, moment + name);
        if (found == nullptr && std::ranges::find(frozen, name) != frozen.end()) continue;
        if (found == nullptr && !file_.optimizer.empty())
          throw CheckpointError(
              fmt::format("{}: its optimizer lacks {}{}", request_.file.string(), moment, name));
        tensors.push_back({moment + name, found == nullptr ? at::zeros_like(parameter) : found->tensor});
      }
    }
    return tensors;
  }

  void save(const Snapshot& snapshot) {
    try {
      fs::create_directories(folder_.root);
      CheckpointStore store(folder_.checkpoints(), config_.training.keep_checkpoints);
      for (const std::string& warning : store.save(snapshot)) notices_.push_back(warning);
      write_file_atomically(folder_.config(), config_.resolved_yaml());
    } catch (const fs::filesystem_error& error) {
      throw EnvironmentError(fmt::format("{}; the run was not written whole: {}", error.what(),
                                         write_remedy(error, folder_.root)));
    }
  }

  void report(const Snapshot& snapshot) {
    if (!file_.without_moments.empty()) {
      notices_.push_back(fmt::format("never got a gradient, so moments are zeros: {}",
                                     abridged(join(file_.without_moments, ", "), 400)));
    }
    if (config_.evaluation.eval_terminal_observation) {
      notices_.push_back(
          "evaluation shows terminal observations (eval_terminal_observation), as the source's");
    }
    if (!is_quantised())
      notices_.push_back(
          "the order of samples is adtrain's own: a continued run does not repeat the source's");
    std::string text = fmt::format("{}: step {}, {}\n", folder_.root.string(), snapshot.step,
                                   summary_of_configuration(config_.resolved_yaml()));
    if (is_quantised()) text += fmt::format("  weights in {}\n", config_.quantisation.weights()->name());
    for (const std::string& notice : notices_) text += fmt::format("  notice: {}\n", notice);
    text += fmt::format("adtrain evaluate {}", folder_.root.string());
    if (!is_quantised())
      text += fmt::format("; or train on: adtrain {}/config.yaml --resume", folder_.root.string());
    text += "\n";
    print_answer(text);
  }

  const ImportRequest& request_;
  TorchCheckpoint file_;
  QuantisedTensors quantised_;  ///< empty where the file has its weights as they are
  std::vector<std::string> notices_;
  RunConfig config_;
  RunFolder folder_;
};

}  // namespace

ExitCode import_checkpoint(const ImportRequest& request) {
  Import(request).run();
  return ExitCode::kDone;
}

}  // namespace adtrain
