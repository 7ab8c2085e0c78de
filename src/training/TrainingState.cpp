#include "training/TrainingState.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"

namespace adtrain {
namespace {

constexpr const char* kFirstMoment = "exp_avg.";
constexpr const char* kSecondMoment = "exp_avg_sq.";
constexpr const char* kStepCount = "step";
constexpr const char* kLossScale = "loss_scale";
constexpr const char* kFrozen = "frozen";  ///< in a manifest: names of parameters without moments

/// Of the run that took the snapshot.
std::set<std::string> frozen_in(const nlohmann::json& state) {
  std::set<std::string> names;
  const auto found = state.find(kFrozen);
  if (found == state.end() || !found->is_array()) return names;
  for (const nlohmann::json& name : *found) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}

/// Whether it is a moment of one of these parameters.
bool is_moment_of(const std::string& tensor, const std::set<std::string>& names) {
  for (const std::string prefix : {kFirstMoment, kSecondMoment}) {
    if (tensor.starts_with(prefix) && names.contains(tensor.substr(prefix.size()))) return true;
  }
  return false;
}

int64_t progress_figure(const nlohmann::json& state, const char* name) {
  if (const std::optional<int64_t> figure = Manifest::count_in(state, name)) return *figure;
  throw CheckpointError(
      fmt::format("the checkpoint's manifest holds no whole number '{}' from 0 to {}, which resuming needs; "
                  "resume from another checkpoint",
                  name, Manifest::kLargestCount));
}

}  // namespace

std::vector<NamedTensor> TrainingState::tensors_beside_the_model(const Optimizer::Moments& moments) const {
  std::vector<NamedTensor> tensors = {{kStepCount, optimizer_.step_count()}};
  const auto add = [&](const char* prefix, const at::Tensor& flat) {
    for (const auto& [name, view] : model_.parameters().trained_views_of(flat))
      tensors.push_back({prefix + name, view});
  };
  add(kFirstMoment, moments.first);
  add(kSecondMoment, moments.second);
  if (loss_scale_ != nullptr) {
    tensors.push_back({kLossScale, loss_scale_->state()});
  }
  return tensors;
}

/// Minimum and maximum are NaN where any value is, and need no memory beyond their own.
bool TrainingState::finite() const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> extremes;
  for (const at::Tensor& flat :
       {model_.parameters().flat(), optimizer_.first_moment(), optimizer_.second_moment()}) {
    if (flat.numel() == 0) continue;  // the shard of a rank that updates nothing
    const auto [smallest, largest] = at::aminmax(flat);
    extremes.insert(extremes.end(), {smallest, largest});
  }
  return at::isfinite(at::stack(extremes)).all().item<bool>();
}

Snapshot TrainingState::snapshot(nlohmann::json origin) {
  Snapshot snapshot;
  snapshot.step = progress.step;
  optimizer_.gather_parameters();
  const Optimizer::Moments moments = optimizer_.moments_on_root();
  if (!moments.first.defined()) return snapshot;
  snapshot.model = model_.parameters().named();
  snapshot.optimizer = tensors_beside_the_model(moments);
  snapshot.state = std::move(origin);
  snapshot.state["samples_drawn"] = progress.samples_drawn;
  if (const auto frozen = model_.parameters().frozen_names(); !frozen.empty())
    snapshot.state[kFrozen] = frozen;
  return snapshot;
}

std::vector<std::string> TrainingState::changes_of_frozen(const std::set<std::string>& frozen_before) const {
  const std::vector<std::string> names = model_.parameters().frozen_names();
  const std::set<std::string> frozen(names.begin(), names.end());
  std::vector<std::string> trains_again, stands_still;
  for (const auto& [name, tensor] : model_.parameters().named()) {
    if (frozen_before.contains(name) && !frozen.contains(name)) trains_again.push_back(name);
    if (!frozen_before.contains(name) && frozen.contains(name)) stands_still.push_back(name);
  }
  const auto sentence = [](const std::vector<std::string>& of, const char* what) {
    return fmt::format("the optimizer's moments of {} tensors {}: {}", of.size(), what,
                       abridged(join(of, ", "), 400));
  };
  std::vector<std::string> sentences;
  if (!trains_again.empty())
    sentences.push_back(sentence(trains_again, "that were frozen before and train now begin at 0"));
  if (!stands_still.empty()) sentences.push_back(sentence(stands_still, "that are frozen now are left out"));
  return sentences;
}

std::vector<std::string> TrainingState::restore(const Snapshot& snapshot) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> saved;
  for (const NamedTensor& tensor : snapshot.optimizer) saved.emplace(tensor.name, tensor.tensor);
  Optimizer::Moments moments = {optimizer_.first_moment(), optimizer_.second_moment()};
  if (optimizer_.sharded()) {
    const at::Tensor zeros =
        at::zeros_like(model_.parameters().trained_of(model_.parameters().flat()), at::kCPU);
    moments = {zeros, zeros.clone()};
  }
  const std::set<std::string> frozen_before = frozen_in(snapshot.state);
  std::vector<NamedTensor> wanted = tensors_beside_the_model(moments);
  // A run that changes to fp16 starts with a fresh loss scale, and parameters that were frozen have no
  // moments; all else must be there.
  std::erase_if(wanted, [&](const NamedTensor& tensor) {
    return !saved.contains(tensor.name) &&
           (tensor.name == kLossScale || is_moment_of(tensor.name, frozen_before));
  });
  for (const NamedTensor& tensor : wanted) {
    const auto found = saved.find(tensor.name);
    if (found == saved.end() || found->second.sizes() != tensor.tensor.sizes()) {
      throw CheckpointError(
          fmt::format("the checkpoint's optimizer state {} '{}'; expected the state of this model: resume "
                      "with the configuration of the run that wrote it",
                      found == saved.end() ? "lacks" : "has another shape for", tensor.name));
    }
  }
  const int64_t samples_drawn = progress_figure(snapshot.state, "samples_drawn");
  model_.parameters().load(snapshot.model);
  for (const at::Tensor& moment : {moments.first, moments.second}) moment.zero_();
  for (const NamedTensor& tensor : wanted) at::Tensor(tensor.tensor).copy_(saved.at(tensor.name));
  progress = {snapshot.step, samples_drawn};
  if (optimizer_.sharded()) restored_ = std::move(moments);
  return changes_of_frozen(frozen_before);
}

void TrainingState::broadcast(Communicator& communicator) {
  const at::NoGradGuard no_grad;
  at::Tensor figures = at::tensor({progress.step, progress.samples_drawn}, at::kLong);
  communicator.broadcast(figures, 0);
  progress.step = figures.const_data_ptr<int64_t>()[0];
  progress.samples_drawn = figures.const_data_ptr<int64_t>()[1];
  at::Tensor parameters = model_.parameters().flat();
  for (at::Tensor* tensor : {&parameters, &optimizer_.step_count()}) communicator.broadcast(*tensor, 0);
  broadcast_moments(communicator);
  if (loss_scale_ != nullptr) {
    at::Tensor scale = loss_scale_->state().to(at::kDouble);
    communicator.broadcast(scale, 0);
    at::Tensor(loss_scale_->state()).copy_(scale);
  }
  model_.parameters().refresh();
}

void TrainingState::broadcast_moments(Communicator& communicator) {
  if (!optimizer_.sharded()) {
    communicator.broadcast(optimizer_.first_moment(), 0);
    communicator.broadcast(optimizer_.second_moment(), 0);
    return;
  }
  at::Tensor restored = at::full({1}, restored_.first.defined() ? 1 : 0, at::kLong);
  communicator.broadcast(restored, 0);
  if (restored.item<int64_t>() != 0) optimizer_.take_moments_of_root(restored_);
  restored_ = {};
}

}  // namespace adtrain
