#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include "adtrain/checkpoint.h"
#include "base/Error.h"
#include "base/Text.h"
#include "checkpoint/CheckpointStore.h"
#include "collectives/Agreement.h"
#include "framework/BroadcastBytes.h"
#include "framework/JoinedGroup.h"
#include "framework/TensorKind.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

using nlohmann::json;

/// The name of optimizer number `index`'s state in optimizer.safetensors.
std::string archive_name(size_t index) {
  return fmt::format("torch_optimizer.{}", index);
}

/// Removes the `module.` that Python's data-parallel wrapper puts before names.
std::string without_wrapper(const std::string& name) {
  constexpr std::string_view kWrapper = "module.";
  return name.starts_with(kWrapper) ? name.substr(kWrapper.size()) : name;
}

at::Tensor archive_of(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream bytes;
  archive.save_to(bytes);
  const std::string text = bytes.str();
  at::Tensor tensor = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(tensor.mutable_data_ptr()));
  return tensor;
}

void restore(torch::optim::Optimizer& optimizer, const at::Tensor& archive, at::Device device) {
  torch::serialize::InputArchive input;
  input.load_from(static_cast<const char*>(archive.const_data_ptr()), static_cast<size_t>(archive.numel()),
                  device);
  optimizer.load(input);
}

/// What rank 0 has done on behalf of all: its result, or the error that it met.
struct Outcome {
  ExitCode code = ExitCode::kDone;
  std::string error;
  json result;
};

/// Runs `work` on rank 0. Returns what it returns, or throws what it throws, on every rank.
json as_root(Communicator& communicator, const std::function<json()>& work) {
  Outcome outcome;
  if (communicator.is_root()) {
    try {
      outcome.result = work();
    } catch (const std::exception& error) {
      const Error known = as_error(error);
      outcome = {known.exit_code(), known.what(), {}};
    }
  }
  const json told = json::parse(text_of_root(
      communicator,
      json{{"code", static_cast<int>(outcome.code)}, {"error", outcome.error}, {"result", outcome.result}}
          .dump(-1, ' ', false, json::error_handler_t::replace)));
  outcome.code = static_cast<ExitCode>(told.at("code").get<int>());
  if (outcome.code != ExitCode::kDone) throw Error(outcome.code, told.at("error").get<std::string>());
  return told.at("result");
}

}  // namespace

class Checkpoints::Tracked {
 public:
  Tracked(std::filesystem::path folder, ProcessGroup& group, int64_t keep)
      : communicator_(group.joined().communicator), store_(folder, keep), folder_(std::move(folder)) {}

  void add(const std::string& name, at::Tensor tensor) {
    if (!tensors_.emplace(without_wrapper(name), NamedTensor{name, std::move(tensor)}).second) {
      throw std::invalid_argument(fmt::format(
          "A checkpoint cannot hold two tensors called {}; expected another name for each.", name));
    }
  }
  void add(torch::optim::Optimizer& optimizer) { optimizers_.push_back(&optimizer); }

  std::vector<std::string> save(int64_t step) {
    const json warnings = as_root(communicator_, [&] { return json(store_.save(snapshot(step))); });
    if (!communicator_.is_root()) return {};
    return warnings.get<std::vector<std::string>>();
  }

  std::optional<int64_t> resume() {
    std::vector<at::Tensor> archives(optimizers_.size());
    const json found = as_root(communicator_, [&] { return take_newest(archives); });
    if (found.is_null()) return std::nullopt;
    for (const auto& [name, named] : tensors_) broadcast_bytes(communicator_, named.tensor);
    for (size_t index = 0; index < optimizers_.size(); ++index) {
      const int64_t bytes = found.at("archives").at(index);
      if (!communicator_.is_root()) archives[index] = at::empty({bytes}, at::kByte);
      broadcast_bytes(communicator_, archives[index]);
      try {
        restore(*optimizers_[index], archives[index], communicator_.device());
      } catch (const c10::Error& error) {
        throw CheckpointError(fmt::format(
            "{} in the newest checkpoint of {} is not the state of the optimizer that is to take it ({}); "
            "expected the same kind of optimizer over the same parameters, tracked in the same order.",
            archive_name(index), folder_.string(), error.what_without_backtrace()));
      }
    }
    return found.at("step").get<int64_t>();
  }

 private:
  Snapshot snapshot(int64_t step) const {
    Snapshot snapshot;
    snapshot.step = step;
    for (const auto& [name, named] : tensors_) {
      const at::Tensor value = named.tensor.detach();
      if (value.is_floating_point() && !at::isfinite(value).all().item<bool>()) {
        throw NonFiniteError(
            fmt::format("{} has a value that is not finite after step {}; nothing was saved: look at the "
                        "loss of the steps before, and go on from the newest checkpoint.",
                        named.name, step));
      }
      snapshot.model.push_back({named.name, value});
    }
    for (size_t index = 0; index < optimizers_.size(); ++index)
      snapshot.optimizer.push_back({archive_name(index), archive_of(*optimizers_[index])});
    snapshot.state["world_size"] = communicator_.world_size();
    return snapshot;
  }

  /// Reads the newest checkpoint, where there is one, into the tensors of this rank.
  json take_newest(std::vector<at::Tensor>& archives) const {
    if (store_.empty()) return nullptr;
    const CheckpointStore::Found found = store_.newest();
    std::map<std::string, at::Tensor> saved;
    for (const auto& [name, tensor] : found.snapshot.model) saved.emplace(without_wrapper(name), tensor);
    std::map<std::string, at::Tensor> states;
    for (const auto& [name, tensor] : found.snapshot.optimizer) states.emplace(name, tensor);
    check(saved, states, found.path);
    const at::AutoGradMode no_gradients(false);
    for (const auto& [name, named] : tensors_) named.tensor.detach().copy_(saved.at(name));
    json bytes = json::array();
    for (size_t index = 0; index < archives.size(); ++index) {
      archives[index] = states.at(archive_name(index));
      bytes.push_back(archives[index].numel());
    }
    return {{"step", found.snapshot.step}, {"archives", bytes}};
  }

  /// Throws CheckpointError that lists everything that differs from what is tracked.
  void check(const std::map<std::string, at::Tensor>& saved, const std::map<std::string, at::Tensor>& states,
             const std::filesystem::path& path) const {
    std::vector<std::string> wrong;
    for (const auto& [name, named] : tensors_) {
      const auto found = saved.find(name);
      if (found == saved.end()) {
        wrong.push_back(fmt::format("{} is missing", named.name));
      } else if (kind_of(found->second) != kind_of(named.tensor)) {
        wrong.push_back(
            fmt::format("{} is {}, expected {}", named.name, kind_of(found->second), kind_of(named.tensor)));
      }
    }
    for (const auto& [name, tensor] : saved) {
      if (!tensors_.contains(name)) wrong.push_back(fmt::format("{} is not tracked", name));
    }
    for (size_t index = 0; index < optimizers_.size(); ++index) {
      if (!states.contains(archive_name(index)))
        wrong.push_back(fmt::format("{} is missing", archive_name(index)));
    }
    if (states.size() > optimizers_.size()) {
      wrong.push_back(
          fmt::format("it holds {} optimizers' tensors, expected {}", states.size(), optimizers_.size()));
    }
    if (wrong.empty()) return;
    throw CheckpointError(fmt::format(
        "{} is not a checkpoint of this program's state:\n  {}\nResume with the program that saved it, or "
        "save into another folder.",
        path.string(), join(wrong, "\n  ")));
  }

  Communicator& communicator_;
  CheckpointStore store_;
  std::filesystem::path folder_;
  std::map<std::string, NamedTensor> tensors_;  ///< by name without wrapper
  std::vector<torch::optim::Optimizer*> optimizers_;
};

Checkpoints::Checkpoints(std::filesystem::path folder, ProcessGroup& group, int64_t keep)
    : tracked_(std::make_unique<Tracked>(std::move(folder), group, keep)) {}
Checkpoints::~Checkpoints() = default;

void Checkpoints::track(torch::nn::Module& module) {
  for (const auto& named : module.named_parameters()) tracked_->add(named.key(), named.value());
  for (const auto& named : module.named_buffers()) tracked_->add(named.key(), named.value());
}

void Checkpoints::track(torch::optim::Optimizer& optimizer) {
  tracked_->add(optimizer);
}

void Checkpoints::track(const std::string& name, at::Tensor tensor) {
  tracked_->add(name, std::move(tensor));
}

std::vector<std::string> Checkpoints::save(int64_t step) {
  return tracked_->save(step);
}

std::optional<int64_t> Checkpoints::resume() {
  return tracked_->resume();
}

}  // namespace adtrain
