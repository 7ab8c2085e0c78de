#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "adtrain/data_parallel.h"
#include "collectives/Agreement.h"
#include "framework/BroadcastBytes.h"
#include "framework/GradientIntake.h"
#include "framework/JoinedGroup.h"
#include "framework/TensorKind.h"
#include "parallel/GradientReducer.h"

namespace adtrain {
namespace {

/// A parameter as an error message names it.
struct Candidate {
  std::string name;
  at::Tensor tensor;
};

bool is_short(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
}

bool contains(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& each) { return each.is_same(tensor); });
}

/// The parameters that require gradients, each once: modules may share one. Throws std::invalid_argument
/// where one cannot be reduced.
std::vector<at::Tensor> trainable(const std::vector<Candidate>& candidates, at::Device device) {
  std::vector<at::Tensor> parameters;
  for (const auto& [name, tensor] : candidates) {
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const bool known = tensor.scalar_type() == at::kFloat || is_short(tensor);
    if (!known || !tensor.is_leaf() || tensor.device() != device) {
      throw std::invalid_argument(fmt::format(
          "Parameter {} is {} of {} on {}; expected a leaf of float32, float16 or bfloat16 on {}: move the "
          "module to the group's device and type before making it data-parallel.",
          name, tensor.is_leaf() ? "a leaf" : "no leaf", c10::toString(tensor.scalar_type()),
          tensor.device().str(), device.str()));
    }
    if (!contains(parameters, tensor)) parameters.push_back(tensor);
  }
  if (parameters.empty()) {
    throw std::invalid_argument("Nothing to be trained: no parameter requires gradients; expected one.");
  }
  return parameters;
}

std::string shapes_of(const std::vector<at::Tensor>& parameters) {
  std::string text;
  for (const at::Tensor& parameter : parameters) {
    text += text.empty() ? "" : " ";
    text += kind_of(parameter);
  }
  return text;
}

ReducerOptions reducer_options(const DataParallelOptions& options) {
  if (options.wire_type != at::kFloat && options.wire_type != at::kBFloat16) {
    throw std::invalid_argument(fmt::format(
        "wire_type is {}; expected kFloat or kBFloat16, the types in which gradients can be summed.",
        c10::toString(options.wire_type)));
  }
  return {.bucket_bytes = options.bucket_bytes,
          .first_bucket_bytes = options.first_bucket_bytes,
          .wire = options.wire_type == at::kBFloat16 ? WireType::kBFloat16 : WireType::kFloat32};
}

/// The factor on each gradient before it is summed over ranks.
double factor_of(const DataParallelOptions& options, int64_t world_size) {
  if (options.micro_steps < 1) {
    throw std::invalid_argument(fmt::format("micro_steps is {}; expected 1 or more.", options.micro_steps));
  }
  const int64_t divisor = options.micro_steps * (options.average ? world_size : 1);
  return 1.0 / static_cast<double>(divisor);
}

}  // namespace

class DataParallel::Gradients {
 public:
  Gradients(std::vector<at::Tensor> parameters, std::vector<at::Tensor> shared, ProcessGroup& group,
            const DataParallelOptions& options)
      : communicator_(group.joined().communicator),
        parameters_(std::move(parameters)),
        shared_(std::move(shared)),
        reducer_(agreed(), communicator_, reducer_options(options), GradientSource::kCaller) {
    broadcast();
    for (const at::Tensor& parameter : parameters_)
      main_.push_back(is_short(parameter) ? copy_of(parameter) : parameter);
    intake_.emplace(parameters_, main_, reducer_, factor_of(options, communicator_.world_size()));
  }

  void begin(bool last) { intake_->begin_micro_step(last); }
  void finish() { intake_->finish(); }

  void broadcast() {
    for (const at::Tensor& tensor : shared_) broadcast_bytes(communicator_, tensor);
  }

  void update() {
    const at::AutoGradMode no_gradients(false);
    for (size_t index = 0; index < main_.size(); ++index) {
      if (!main_[index].is_same(parameters_[index])) parameters_[index].copy_(main_[index]);
    }
  }

  /// Updates the fp32 copies after parameters were assigned directly.
  void take_values() {
    const at::AutoGradMode no_gradients(false);
    for (size_t index = 0; index < main_.size(); ++index) {
      if (!main_[index].is_same(parameters_[index])) main_[index].copy_(parameters_[index]);
    }
  }

  const std::vector<at::Tensor>& main() const { return main_; }
  const at::Tensor& flat() const { return reducer_.flat_gradient(); }

 private:
  const std::vector<at::Tensor>& agreed() {
    check_same(communicator_, "the shapes of the parameters", shapes_of(parameters_));
    return parameters_;
  }

  static at::Tensor copy_of(const at::Tensor& parameter) {
    return parameter.detach().to(at::kFloat).contiguous().requires_grad_();
  }

  Communicator& communicator_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> shared_;  ///< parameters and buffers
  GradientReducer reducer_;
  std::vector<at::Tensor> main_;  ///< by parameter: itself, or its float32 copy
  std::optional<GradientIntake> intake_;
};

DataParallel::DataParallel(torch::nn::Module& module, ProcessGroup& group,
                           const DataParallelOptions& options) {
  std::vector<Candidate> candidates;
  for (const auto& named : module.named_parameters()) candidates.push_back({named.key(), named.value()});
  std::vector<at::Tensor> shared = module.parameters();
  for (const at::Tensor& buffer : module.buffers()) shared.push_back(buffer);
  gradients_ =
      std::make_unique<Gradients>(trainable(candidates, group.device()), std::move(shared), group, options);
}

DataParallel::DataParallel(std::vector<at::Tensor> parameters, ProcessGroup& group,
                           const DataParallelOptions& options) {
  std::vector<Candidate> candidates;
  for (size_t index = 0; index < parameters.size(); ++index)
    candidates.push_back({std::to_string(index), parameters[index]});
  gradients_ = std::make_unique<Gradients>(trainable(candidates, group.device()), std::move(parameters),
                                           group, options);
}

DataParallel::~DataParallel() = default;

void DataParallel::backward(const at::Tensor& loss, bool last_micro_step) {
  begin_micro_step(last_micro_step);
  loss.backward();
  if (last_micro_step) finish();
}

void DataParallel::begin_micro_step(bool last) {
  gradients_->begin(last);
}

void DataParallel::finish() {
  gradients_->finish();
}

const std::vector<at::Tensor>& DataParallel::main_parameters() const {
  return gradients_->main();
}

void DataParallel::update_parameters() {
  gradients_->update();
}

const at::Tensor& DataParallel::flat_gradient() const {
  return gradients_->flat();
}

void DataParallel::broadcast_parameters() {
  gradients_->broadcast();
  gradients_->take_values();
}

}  // namespace adtrain
