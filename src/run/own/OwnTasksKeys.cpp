#include "run/own/OwnTasksKeys.h"

#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "base/Words.h"
#include "config/Scalar.h"
#include "environments/Space.h"

namespace adtrain {
namespace {

using nlohmann::json;

json json_of(const YAML::Node& node) {
  if (node.IsMap()) {
    json object = json::object();
    for (const auto& pair : node) object[pair.first.Scalar()] = json_of(pair.second);
    return object;
  }
  if (node.IsSequence()) {
    json array = json::array();
    for (const YAML::Node& element : node) array.push_back(json_of(element));
    return array;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string& text = node.Scalar();
  if (const auto whole = Scalar<int64_t>::parse(text)) return *whole;
  if (const auto real = Scalar<double>::parse(text)) return *real;
  if (text == ".inf" || text == "+.inf") return "Infinity";
  return text == "-.inf" ? "-Infinity" : text;
}

/// JSON with infinite bounds as Python writes them, which JSON itself lacks.
std::string python_json_of(const YAML::Node& node) {
  static const std::regex kQuoted("\"(-?Infinity)\"");
  return std::regex_replace(json_of(node).dump(), kQuoted, "$1");
}

void unfold_space(Document& document, const char* key) {
  const Entry* const found = document.find(key);
  if (found == nullptr || found->kind == Entry::Kind::kNull) return;
  try {
    const std::string text =
        found->kind == Entry::Kind::kMap ? python_json_of(YAML::Load(found->text)) : found->text;
    document.replace(key, Space::from_json(text, "it").to_json());
  } catch (const DataError& error) {
    document.refuse(key, error.what());
  }
}

void unfold_packing(Document& document) {
  constexpr const char* kPacking = "observation_packing";
  const Entry* const found = document.find(kPacking);
  if (found == nullptr || found->kind == Entry::Kind::kNull) return;
  const std::vector<std::string> digits =
      found->kind == Entry::Kind::kList ? document.texts_of(kPacking) : between_commas(found->text);
  bool whole = digits.size() >= 2 && found->kind != Entry::Kind::kMap;
  std::vector<std::string> numbers;
  for (const std::string& digit : digits) {
    constexpr int64_t kMostValues = 1 << 24;
    const auto values = Scalar<int64_t>::parse(digit);
    whole = whole && values && *values >= 2 && *values <= kMostValues;
    if (whole) numbers.push_back(std::to_string(*values));
  }
  if (whole) {
    document.replace(kPacking, join(numbers, ","));
  } else {
    document.refuse(kPacking,
                    fmt::format("found {}; expected how many values each digit may take, two digits "
                                "at least, such as [13, 12]",
                                found->found()));
  }
}

void check_there_are_tasks(const RunConfig& config, Findings& findings) {
  if (config.data.histories || config.worker.env_worker) return;
  const std::string nearest = nearest_name(config.environment.env, environment_names());
  findings.add(
      "env",
      fmt::format("found '{}'; expected {}, or, for tasks of your own under that name, their histories "
                  "(histories: FILE) or their environments (env_worker: module:function){}",
                  abridged(config.environment.env), join(environment_names(), ", "),
                  nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

}  // namespace

void unfold_spaces(Document& document) {
  unfold_space(document, "observation_space");
  unfold_space(document, "action_space");
  unfold_packing(document);
}

void check_own_tasks(const RunConfig& config, Findings& findings) {
  const DataOptions& data = config.data;
  if (!config.environment.has_own_tasks()) {
    const auto only_own = [&](const char* key, bool found) {
      if (!found) return;
      findings.add(key, fmt::format("found it with env {}, whose histories are read into memory; expected it "
                                    "for tasks of your own alone: leave it out, or give env a name of yours",
                                    config.environment.env));
    };
    only_own("histories", data.histories.has_value());
    only_own("normalize_observations", data.normalize_observations);
    only_own("window_stride", data.window_stride != 1);
    only_own("window_margin", data.window_margin != 0);
    only_own("last_fraction", data.last_fraction != 1);
    only_own("sequence_packing", data.sequence_packing);
    only_own("task_weights", data.task_weights != TaskWeights::kWindows);
    only_own("reward_scale", data.reward_scale != 1);
    only_own("train_source_timesteps", data.train_source_timesteps == kAllThereAre);
    only_own("train_n_stream", data.train_n_stream == kAllThereAre);
    return;
  }
  check_there_are_tasks(config, findings);
  if (config.training.returns.interval > 0 && !config.worker.env_worker) {
    findings.add(
        "return_interval",
        fmt::format("found {} for tasks of your own without their environments, in which returns are "
                    "measured; expected env_worker: module:function beside it, or 0",
                    config.training.returns.interval));
  }
}

std::string remark_on_label(const RunConfig& config) {
  const std::string nearest = nearest_name(config.environment.env, environment_names());
  if (nearest.empty()) return "";
  return fmt::format("env: '{}' is a label for tasks of your own; the family of tasks is called {}",
                     config.environment.env, nearest);
}

}  // namespace adtrain
