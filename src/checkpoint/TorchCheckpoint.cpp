#include "checkpoint/TorchCheckpoint.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/TorchFile.h"

namespace adtrain {
namespace {

using Kind = Pickle::Kind;
using Value = Pickle::Value;
using nlohmann::json;

constexpr const char* kMoments[] = {"exp_avg", "exp_avg_sq"};

std::string without_wrappers(std::string name) {
  for (bool stripped = true; stripped;) {
    stripped = false;
    for (const std::string_view wrapper : {"module.", "_orig_mod."}) {
      if (!name.starts_with(wrapper)) continue;
      name.erase(0, wrapper.size());
      stripped = true;
    }
  }
  return name;
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::filesystem::path& path) : file_(bytes, path), path_(path) {}

  TorchCheckpoint read() {
    const Value& root = file_.pickle().root();
    const Value* model = find(root, "model");
    if (model == nullptr) {
      fail(fmt::format(
          "found {}; expected a dict with the entry 'model', a state_dict, as the Python projects "
          "save it",
          root.kind == Kind::kDict ? "a dict with " + keys_of(root) : "something else than a dict"));
    }
    found_.model = file_.tensors(*model, "model");
    std::set<std::string> names;
    for (NamedTensor& named : found_.model) {
      named.name = without_wrappers(named.name);
      if (!names.insert(named.name).second) fail(fmt::format("two tensors are called '{}'", named.name));
    }
    found_.of_adtrain = find(root, "adtrain") != nullptr;
    found_.step = count(find(root, "step"), "step");
    if (const Value* config = find(root, "config"); config != nullptr)
      found_.config = file_.plain(*config, "config");
    if (const Value* schedule = find(root, "lr_sched"); schedule != nullptr)
      found_.schedule_step = count(find(*schedule, "last_epoch"), "lr_sched's last_epoch");
    if (const Value* optimizer = find(root, "optimizer"); optimizer != nullptr) read_optimizer(*optimizer);
    return std::move(found_);
  }

 private:
  [[noreturn]] void fail(const std::string& fault) const {
    throw CheckpointError(fmt::format("{}: {}", path_.string(), abridged(fault, 600)));
  }
  const Value* find(const Value& dict, std::string_view key) const { return file_.pickle().find(dict, key); }

  std::string keys_of(const Value& dict) const {
    std::vector<std::string> keys;
    for (size_t i = 0; i < dict.parts.size() && keys.size() < 8; i += 2)
      keys.push_back("'" + file_.pickle().at(dict.parts[i]).text + "'");
    return keys.empty() ? "no entries" : join(keys, ", ");
  }

  std::optional<int64_t> count(const Value* value, const char* what) const {
    if (value == nullptr) return std::nullopt;
    if (value->kind != Kind::kInteger || value->integer < 0 || value->integer > Manifest::kLargestCount)
      fail(fmt::format("'{}' is no whole number from 0 on", what));
    return value->integer;
  }

  void read_optimizer(const Value& optimizer) {
    if (find(optimizer, "state") != nullptr) {
      read_groups(optimizer);
      read_states(*find(optimizer, "state"));
    } else if (find(optimizer, kMoments[0]) != nullptr) {
      read_by_name(optimizer);
    } else {
      fail("its optimizer has neither 'state', as torch.optim's, nor moments by name; expected AdamW's");
    }
  }

  /// As torch_export_bytes writes them.
  void read_by_name(const Value& optimizer) {
    for (const char* moment : kMoments) {
      const Value* by_name = find(optimizer, moment);
      if (by_name == nullptr) fail(fmt::format("its optimizer lacks '{}'", moment));
      for (NamedTensor& named : file_.tensors(*by_name, moment))
        found_.optimizer.push_back({fmt::format("{}.{}", moment, named.name), named.tensor});
    }
    const Value* step = find(optimizer, "step");
    if (step == nullptr) fail("its optimizer lacks 'step'");
    found_.optimizer.push_back({"step", file_.tensor(*step, "step").to(at::kFloat)});
  }

  void read_groups(const Value& optimizer) {
    const Value* groups = find(optimizer, "param_groups");
    const json list = groups == nullptr ? json() : file_.plain(*groups, "param_groups");
    if (!list.is_array() || list.size() != 1 || !list[0].is_object() || !list[0].contains("params")) {
      fail(
          "its optimizer's param_groups are not one group: which moments belong to which name is known only "
          "where all parameters are in one, in the module's order");
    }
    found_.optimizer_settings = list[0];
    const json numbers = list[0]["params"];
    found_.optimizer_settings.erase("params");
    if (found_.optimizer_settings.value("amsgrad", json(false)) == true)
      fail("its optimizer is AdamW with amsgrad, which means another update; expected plain AdamW");
    if (!numbers.is_array() || numbers.size() != found_.model.size()) {
      fail(fmt::format(
          "its optimizer has {} parameters and its model {} tensors; expected as many, as moments "
          "are matched by their order",
          numbers.size(), found_.model.size()));
    }
    for (const json& number : numbers)
      numbers_.push_back(number.is_number_integer() ? number.get<int64_t>() : -1);
  }

  void read_states(const Value& states) {
    std::map<int64_t, const Value*> by_number;
    if (states.kind != Kind::kDict) fail("its optimizer's state is no dict");
    for (size_t i = 0; i < states.parts.size(); i += 2) {
      const Value& number = file_.pickle().at(states.parts[i]);
      if (number.kind == Kind::kInteger) by_number[number.integer] = &file_.pickle().at(states.parts[i + 1]);
    }
    std::optional<double> steps;
    for (size_t i = 0; i < found_.model.size(); ++i) {
      const NamedTensor& parameter = found_.model[i];
      const auto state = by_number.find(numbers_[i]);
      if (state == by_number.end()) found_.without_moments.push_back(parameter.name);
      for (const char* moment : kMoments) {
        found_.optimizer.push_back({fmt::format("{}.{}", moment, parameter.name),
                                    state == by_number.end() ? at::zeros(parameter.tensor.sizes(), at::kFloat)
                                                             : moment_of(*state->second, moment, parameter)});
      }
      if (state == by_number.end()) continue;
      const double step = step_of(*state->second, parameter.name);
      if (steps.value_or(step) != step) {
        fail(
            fmt::format("its optimizer has taken {} steps with '{}' and {} with others; one number of steps "
                        "for all is needed here",
                        step, parameter.name, *steps));
      }
      steps = step;
    }
    found_.optimizer.push_back({"step", at::full({}, steps.value_or(0), at::kFloat)});
  }

  at::Tensor moment_of(const Value& state, const char* moment, const NamedTensor& parameter) {
    const Value* value = find(state, moment);
    if (value == nullptr)
      fail(fmt::format("its optimizer has no {} for '{}'; expected AdamW's state", moment, parameter.name));
    const at::Tensor tensor = file_.tensor(*value, fmt::format("{}.{}", moment, parameter.name));
    if (tensor.sizes() != parameter.tensor.sizes()) {
      fail(fmt::format(
          "its optimizer's {} number {} does not have the shape of '{}': the moments are in another "
          "order than the model's tensors",
          moment, &parameter - found_.model.data(), parameter.name));
    }
    return tensor.to(at::kFloat);
  }

  double step_of(const Value& state, const std::string& name) {
    const Value* step = find(state, "step");
    if (step == nullptr) fail(fmt::format("its optimizer has no step for '{}'", name));
    if (step->kind == Kind::kInteger) return static_cast<double>(step->integer);
    const at::Tensor tensor = file_.tensor(*step, "step");
    if (tensor.numel() != 1) fail(fmt::format("its optimizer's step for '{}' is no number", name));
    return tensor.item<double>();
  }

  TorchFile file_;
  const std::filesystem::path& path_;
  TorchCheckpoint found_;
  std::vector<int64_t> numbers_;  ///< the optimizer's, of each of the model's tensors
};

}  // namespace

TorchCheckpoint TorchCheckpoint::parse(std::string_view bytes, const std::filesystem::path& path) {
  return Reader(bytes, path).read();
}

}  // namespace adtrain
