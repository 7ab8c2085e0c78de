#include "run/AccelerateSettings.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

/// A variable of accelerate and the key that it stands for.
struct Setting {
  const char* variable;
  const char* key;
  std::vector<std::string> other_keys;    ///< which mean the same
  std::vector<std::string> says_nothing;  ///< values that accelerate sets by itself
};

const std::vector<Setting>& settings() {
  static const std::vector<Setting> kSettings = {
      {"ACCELERATE_MIXED_PRECISION", "mixed_precision", {}, {"no"}},
      {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "gradient_accumulation_steps", {}, {"1", "auto"}},
      {"ACCELERATE_GRADIENT_CLIPPING", "max_grad_norm", {"grad_clip", "clip_grad_norm"}, {"none", "auto"}},
  };
  return kSettings;
}

/// What accelerate can do with memory and ranks that this program does not.
const std::vector<std::pair<const char*, const char*>>& without_counterpart() {
  static const std::vector<std::pair<const char*, const char*>> kVariables = {
      {"ACCELERATE_USE_FSDP", "FSDP"},
      {"ACCELERATE_USE_DEEPSPEED", "DeepSpeed"},
      {"ACCELERATE_USE_MEGATRON_LM", "Megatron-LM"},
  };
  return kVariables;
}

/// As accelerate reads truth values.
bool is_true(const std::optional<std::string>& value) {
  static const std::vector<std::string> kTrue = {"y", "yes", "t", "true", "on", "1"};
  return value && std::ranges::find(kTrue, to_lower(*value)) != kTrue.end();
}

/// Words without regard to case, numbers by their value.
bool same(const std::string& one, const std::string& other) {
  return same_meaning(to_lower(one), to_lower(other));
}

/// The entry of the document that decides the key, which is the last under any of its names; null where there
/// is none.
const Entry* entry_for(const Document& document, const Setting& setting) {
  const Entry* deciding = nullptr;
  for (const Entry& entry : document.entries()) {
    if (entry.key == setting.key ||
        std::ranges::find(setting.other_keys, entry.key) != setting.other_keys.end())
      deciding = &entry;
  }
  return deciding;
}

void take(Document& document, const Setting& setting, const std::string& value,
          std::vector<std::string>& remarks) {
  const Entry* const found = entry_for(document, setting);
  if (found == nullptr) {
    document.add(setting.key, value, Origin{setting.variable, 0});
    remarks.push_back(
        fmt::format("{}: {} is what accelerate asks for ({}), as the configuration says nothing", setting.key,
                    abridged(value), setting.variable));
  } else if (!same(found->text, value)) {
    remarks.push_back(
        fmt::format("{}: {}: {} counts, and not what accelerate asks for ({}={}); leave the key out to let "
                    "accelerate decide",
                    found->origin.text(), found->key, found->text, setting.variable, abridged(value)));
  }
}

/// `device: auto` leaves open what accelerate decides.
void take_device(Document& document, std::vector<std::string>& remarks) {
  static const Setting kDevice = {"ACCELERATE_USE_CPU", "device", {}, {}};
  const Entry* const found = document.find(kDevice.key);
  if (found == nullptr || !same(found->text, "auto")) return take(document, kDevice, "cpu", remarks);
  document.replace(kDevice.key, "cpu");
  remarks.push_back(fmt::format("{}: device: cpu is what accelerate asks for ({})", found->origin.text(),
                                kDevice.variable));
}

}  // namespace

std::vector<std::string> take_accelerate_settings(Document& document, const EnvironmentLookup& lookup) {
  std::vector<std::string> remarks;
  for (const Setting& setting : settings()) {
    const std::optional<std::string> value = lookup(setting.variable);
    if (!value) continue;
    if (std::ranges::find(setting.says_nothing, to_lower(*value)) != setting.says_nothing.end()) continue;
    take(document, setting, *value, remarks);
  }
  if (is_true(lookup("ACCELERATE_USE_CPU"))) take_device(document, remarks);
  for (const auto& [variable, name] : without_counterpart()) {
    if (!is_true(lookup(variable))) continue;
    remarks.push_back(
        fmt::format("accelerate asks for {} ({}), which is not there yet: every rank holds the whole model",
                    name, variable));
  }
  return remarks;
}

}  // namespace adtrain
