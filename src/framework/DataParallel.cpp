#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include "adtrain/data_parallel.h"
#include "distributed/Agreement.h"
#include "distributed/GradientReducer.h"
#include "framework/BroadcastBytes.h"
#include "framework/JoinedGroup.h"
#include "framework/TensorKind.h"

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

/// Those that require gradients, each once: modules may share one. Throws std::invalid_argument where one
/// cannot be reduced.
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

}  // namespace

class DataParallel::Gradients {
 public:
  Gradients(std::vector<at::Tensor> parameters, std::vector<at::Tensor> shared, ProcessGroup& group,
            const DataParallelOptions& options)
      : communicator_(group.joined().communicator),
        parameters_(std::move(parameters)),
        shared_(std::move(shared)),
        reducer_(agreed(), communicator_, reducer_options(options)),
        factor_(options.average ? 1.0 / static_cast<double>(communicator_.world_size()) : 1.0) {
    broadcast();
    for (const at::Tensor& parameter : parameters_) {
      main_.push_back(is_short(parameter) ? copy_of(parameter) : parameter);
      // To autograd no views: zero_grad() detaches gradients in place, which it refuses for views.
      views_.push_back(main_.back().grad().detach());
    }
    attach();
  }

  void begin(bool last) {
    if (begins_step_) {
      attach();
      reducer_.zero();
    }
    begins_step_ = false;
    reducer_.begin_micro_step(last);
  }

  void finish() {
    begins_step_ = true;
    reducer_.finish();
    check_attached();
    if (factor_ != 1.0) at::Tensor(reducer_.flat_gradient()).mul_(factor_);
  }

  /// Where a parameter's `.grad` is no longer a part of the flat gradient, what was summed is not its
  /// gradient.
  void check_attached() const {
    for (size_t index = 0; index < main_.size(); ++index) {
      if (main_[index].grad().is_same(views_[index])) continue;
      throw std::logic_error(fmt::format(
          "The gradient of parameter {} (in the order given) was replaced during the step; expected it to "
          "stay a part of the flat gradient: leave out zero_grad() between micro-steps, and create_graph.",
          index));
    }
  }

  void broadcast() {
    for (const at::Tensor& tensor : shared_) broadcast_bytes(communicator_, tensor);
  }

  void update() {
    const at::AutoGradMode no_gradients(false);
    for (size_t index = 0; index < main_.size(); ++index) {
      if (!main_[index].is_same(parameters_[index])) parameters_[index].copy_(main_[index]);
    }
  }

  /// The parameters have their values by themselves now: copies follow.
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

  at::Tensor copy_of(const at::Tensor& parameter) {
    at::Tensor copy = parameter.detach().to(at::kFloat).contiguous().requires_grad_();
    copy.mutable_grad() =
        reducer_.place_of(parameter).narrow(0, 0, parameter.numel()).view(parameter.sizes());
    return copy;
  }

  /// Optimizers' zero_grad() lets go of gradients.
  void attach() {
    for (size_t index = 0; index < main_.size(); ++index) main_[index].mutable_grad() = views_[index];
  }

  Communicator& communicator_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> shared_;  ///< parameters and buffers
  GradientReducer reducer_;
  double factor_;                  ///< of the sum
  std::vector<at::Tensor> main_;   ///< by parameter: itself, or its float32 copy
  std::vector<at::Tensor> views_;  ///< of the flat gradient, by parameter
  bool begins_step_ = true;
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
