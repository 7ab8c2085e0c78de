#include "run/LoadedNetwork.h"

#include <algorithm>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "base/Words.h"
#include "checkpoint/QuantisedTensors.h"
#include "checkpoint/TensorStatistics.h"
#include "collectives/Agreement.h"
#include "kernels/quantised/OutlierProduct.h"
#include "kernels/quantised/Quantise.h"
#include "model/ActivationEstimate.h"
#include "model/ParameterNames.h"
#include "model/ParameterPatterns.h"
#include "model/QuantisedNetwork.h"

namespace adtrain {
namespace {

std::string bytes_text(int64_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

std::string size_text(const RunConfig& config, const ParameterBuffer& parameters,
                      const std::set<std::string>& names, const QuantisedSize& size, at::ScalarType type) {
  return fmt::format("{}: {} of {} linear layers; {} with all others in {}, instead of {}",
                     config.quantisation.weights()->name(), names.size(), parameters.linear_weights().size(),
                     bytes_text(size.total), precision_name(type), bytes_text(size.unquantised));
}

/// Layers whose weights take no less than before, and a network whose weights are not what takes the memory.
std::vector<std::string> warnings_of(const RunConfig& config, AlgorithmDistillation& model,
                                     const QuantisedSize& size, at::ScalarType type) {
  std::vector<std::string> warnings;
  const std::string name = config.quantisation.weights()->name();
  if (!size.without_gain.empty()) {
    warnings.push_back(fmt::format(
        "{} linear layer{} no less in {} than in {}, as there are few weights to a scale or a map: {}; "
        "llm_int8_skip_modules leaves them as they are",
        size.without_gain.size(), size.without_gain.size() == 1 ? " takes" : "s take", name,
        precision_name(type), abridged(join(size.without_gain, ", "), 300)));
  }
  constexpr int64_t kNoticed = 8'000'000;  // a hundredth of what CUDA takes for itself
  const int64_t saved = size.unquantised - size.total;
  const int64_t of_a_row = inference_bytes(config.model, config.model_shape(),
                                           model.plan(LossPositions::kLast), type, /*sequences=*/1);
  if (saved < std::max(of_a_row, kNoticed)) {
    warnings.push_back(fmt::format(
        "{} saves {} of weights, where a pass takes {} for each row: a network of this size is faster and "
        "more exact without {}",
        name, saved > 0 ? bytes_text(saved) : "nothing", bytes_text(of_a_row), config.quantisation.key()));
  }
  return warnings;
}

/// Brings weights that are quantised, or to be quantised, to all ranks, in the host's memory.
class QuantisedLoading {
 public:
  QuantisedLoading(const RunConfig& config, Communicator& communicator, AlgorithmDistillation& model)
      : config_(config), how_(*config.quantisation.weights()), communicator_(communicator), model_(model) {}

  /// Rank 0 reads. Returns the checkpoint's step.
  int64_t read(const TrainedRun& trained, Console& console) {
    const at::NoGradGuard no_grad;
    at::Tensor step = at::zeros({1}, at::kLong);
    if (communicator_.is_root()) {
      Snapshot snapshot = trained.read(config_, console);
      step.fill_(snapshot.step);
      const std::filesystem::path file = trained.checkpoint.value_or(trained.folder.root);
      expect_finite(snapshot.model, file.string() + ": ");  // codes of 4 bits hide a NaN
      stored_ = QuantisedTensors::of(std::move(snapshot.model), file);
      if (!stored_.matrices.empty()) check_form(file);
      load_others();
    }
    at::Tensor weights = model_.parameters().flat();
    communicator_.broadcast(weights, 0);
    communicator_.broadcast(step, 0);
    return step.item<int64_t>();
  }

  /// Returns the names of what is quantised then.
  std::set<std::string> quantise(at::Device device, at::ScalarType type) {
    std::vector<std::string> stored;
    for (const auto& [name, matrix] : stored_.matrices) stored.push_back(name);
    stored = between_commas(text_of_root(communicator_, join(stored, ",")));
    std::erase(stored, "");
    if (stored.empty()) {
      const auto names = quantised_names(config_, model_.parameters());
      model_.quantise(names, how_, device, type);
      return names;
    }
    const at::NoGradGuard no_grad;
    for (const auto& [name, leaf] : model_.parameters().named_leaves()) {
      if (std::ranges::find(stored, name) != stored.end()) share(name, leaf.size(0), leaf.size(1));
    }
    model_.take_quantised(std::move(stored_.matrices), how_, device, type);
    return {stored.begin(), stored.end()};
  }

 private:
  void check_form(const std::filesystem::path& file) const {
    const WeightQuantisation found = stored_form(stored_.matrices, model_.parameters(), file);
    if (found.code != how_.code || found.double_quantisation != how_.double_quantisation) {
      throw CheckpointError(
          fmt::format("{} is quantised as {}, and the configuration asks for {}: use the keys that it was "
                      "exported with",
                      file.string(), found.name(), how_.name()));
    }
    if (!skips_others(config_, model_.parameters(), stored_.matrices)) return;
    const std::string stored = join(modules_left(model_.parameters(), stored_.matrices), ",");
    throw CheckpointError(fmt::format(
        "{}: found '{}', and {} is quantised already, in all linear layers but heads{}; expected the keys "
        "that it was exported with, here {}",
        config_.place_of("llm_int8_skip_modules"), abridged(*config_.quantisation.skip_modules),
        file.string(), stored.empty() ? "" : " and " + abridged(stored),
        stored.empty() ? "null" : abridged(stored)));
  }

  /// With zeros in the place of what is quantised.
  void load_others() {
    std::vector<NamedTensor> tensors = stored_.others;
    for (NamedTensor& zeros : stored_.places()) tensors.push_back(std::move(zeros));
    model_.parameters().load(tensors);
  }

  /// Gives rank 0's matrix to all.
  void share(const std::string& name, int64_t out_features, int64_t in_features) {
    QuantisedMatrix& matrix = stored_.matrices[name];
    if (!communicator_.is_root()) matrix = without_values(out_features, in_features);
    at::Tensor offset = at::full({1}, matrix.nested_offset);
    communicator_.broadcast(offset, 0);
    matrix.nested_offset = offset.item<float>();
    for (const at::Tensor& tensor : matrix.tensors()) {
      if (!tensor.defined()) continue;
      at::Tensor bytes = tensor.flatten().view(at::kByte);
      communicator_.broadcast(bytes, 0);
    }
  }

  QuantisedMatrix without_values(int64_t out_features, int64_t in_features) const {
    QuantisedMatrix matrix =
        kernels::quantised_shape(how_.code, how_.double_quantisation, out_features, in_features);
    for (at::Tensor* const tensor :
         {&matrix.codes, &matrix.absmax, &matrix.code_map, &matrix.nested_absmax, &matrix.nested_map}) {
      if (tensor->defined()) *tensor = at::empty(tensor->sizes(), tensor->scalar_type());
    }
    return matrix;
  }

  const RunConfig& config_;
  WeightQuantisation how_;
  Communicator& communicator_;
  AlgorithmDistillation& model_;
  QuantisedTensors stored_;  ///< on rank 0
};

}  // namespace

LoadedNetwork LoadedNetwork::of(const RunConfig& config, const TrainedRun& trained, const Ranks& ranks,
                                at::ScalarType type, Console& console) {
  LoadedNetwork loaded;
  loaded.model = AlgorithmDistillation::to_be_loaded(config.model, config.model_shape(),
                                                     static_cast<uint64_t>(config.training.seed));
  AlgorithmDistillation& model = *loaded.model;
  const auto how = config.quantisation.weights();
  if (!how) {
    loaded.step = trained.load_weights(config, console, ranks, type, model);
    return loaded;
  }
  QuantisedLoading loading(config, *ranks.communicator, model);
  loaded.step = loading.read(trained, console);
  const auto names = loading.quantise(ranks.device.device, type);
  const QuantisedSize size = QuantisedSize::of(model.parameters(), names, *how, type);
  loaded.weights = size_text(config, model.parameters(), names, size, type);
  loaded.warnings = warnings_of(config, model, size, type);
  return loaded;
}

at::ScalarType loaded_type(const RunConfig& config, at::Device device) {
  if (const auto chosen = config.evaluation.chosen_type()) return *chosen;
  if (!config.quantisation.is_on()) return at::kFloat;
  if (const auto type = config.quantisation.compute_type()) return *type;
  if (!device.is_cuda()) return at::kFloat;
  const at::ScalarType trained = config.training.compute_type(device);
  return trained == at::kFloat ? at::kBFloat16 : trained;
}

std::set<std::string> quantised_names(const RunConfig& config, const ParameterBuffer& parameters) {
  return quantised_names(parameters, config.quantisation.skip_modules.value_or(""),
                         config.place_of("llm_int8_skip_modules"));
}

std::vector<std::string> modules_left(const ParameterBuffer& parameters, const QuantisedMatrices& stored) {
  std::set<std::string> hold_quantised;
  for (const auto& [name, matrix] : stored) {
    for (std::string& beginning : beginnings_of(name)) hold_quantised.insert(std::move(beginning));
  }
  std::vector<std::string> modules;
  for (const std::string& name : parameters.linear_weights()) {
    if (stored.contains(name) || comes_after_blocks(name)) continue;
    const std::vector<std::string> beginnings = beginnings_of(name);
    const std::string& shortest = *std::ranges::find_if(
        beginnings, [&](const std::string& beginning) { return !hold_quantised.contains(beginning); });
    if (std::ranges::find(modules, shortest) == modules.end()) modules.push_back(shortest);
  }
  return modules;
}

bool skips_others(const RunConfig& config, const ParameterBuffer& parameters,
                  const QuantisedMatrices& stored) {
  const std::string patterns = trimmed(config.quantisation.skip_modules.value_or(""));
  if (patterns.empty()) return false;
  std::vector<std::string> all;
  for (const auto& [name, leaf] : parameters.named_leaves()) all.push_back(name);
  const auto skipped = names_that_fit(patterns, all, config.place_of("llm_int8_skip_modules"));
  return std::ranges::any_of(parameters.linear_weights(), [&](const std::string& name) {
    if (stored.contains(name)) return skipped.contains(name);
    return !skipped.contains(name) && !comes_after_blocks(name);
  });
}

bool can_be_captured(const RunConfig& config, const kernels::DeviceTraits& device, at::ScalarType type) {
  if (config.training.cuda_graph == CudaGraphUse::kOff) return false;
  const auto weights = config.quantisation.weights();
  return !weights || weights->outlier_threshold == 0 || kernels::has_outlier_kernels(device, type);
}

std::string quantised_notice(const RunConfig& config) {
  const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
  const at::ScalarType type =
      loaded_type(config, config.run.device == DeviceChoice::kCpu ? at::kCPU : at::kCUDA);
  const auto names = quantised_names(config, model->parameters());
  const QuantisedSize size =
      QuantisedSize::of(model->parameters(), names, *config.quantisation.weights(), type);
  return fmt::format(
      "{} is for adtrain score and adtrain evaluate, adtrain train refuses it; what is shown are the kernels "
      "of these; weights by arithmetic in {}",
      config.quantisation.key(), size_text(config, model->parameters(), names, size, type));
}

void refuse_to_train_quantised(const RunConfig& config) {
  if (!config.quantisation.is_on()) return;
  throw ConfigError(fmt::format(
      "{}: found true, and quantised weights do not train: an optimizer's step is far smaller than the step "
      "from one code to the next; expected false. A trained run is loaded so where it is used: adtrain score "
      "RUN --set {}=true, and adtrain evaluate",
      config.place_of(config.quantisation.key()), config.quantisation.key()));
}

}  // namespace adtrain
