#include "run/OtherBlocks.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "run/ConfigChanges.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

struct Setting {
  std::string key, value;
};

ModelOptions decided_model(const RunConfig& config) {
  ModelOptions model = config.environment.has_own_tasks() ? config.model.of_own_tasks() : config.model;
  model.decide();
  return model;
}

/// What decides how blocks compute.
std::vector<Setting> settings_of_blocks(ModelOptions model) {
  const auto number = [](int64_t value) { return fmt::format("{}", value); };
  std::vector<Setting> settings = {{"tf_n_embd", number(model.tf_n_embd)},
                                   {"tf_n_layer", number(model.tf_n_layer)},
                                   {"tf_n_head", number(model.tf_n_head)},
                                   {"tf_n_inner", number(model.inner_width())}};
  Section section("Model");
  model.declare(section);
  const auto value_of = [&](const std::string& key) {
    const auto found = std::ranges::find(section.keys(), key, &Key::name);
    return found->value_text();
  };
  if (model.is_plugin()) {
    settings.push_back({"model", value_of("model")});
  } else if (model.composed()) {
    for (const char* piece : {"tf_norm", "tf_final_norm", "tf_mlp", "tf_positions", "tf_qk_norm", "tf_bias"})
      settings.push_back({piece, value_of(piece)});
  } else {
    const char* const block = model.compressed()                             ? "compressed context"
                              : model.block() == TransformerBlock::kGpt2     ? "gpt2"
                              : model.block() == TransformerBlock::kPostNorm ? "post_norm"
                                                                             : "pre_norm";
    settings.push_back({"transformer_block", block});
  }
  return settings;
}

/// "" where the settings have no such key.
std::string value_in(const std::vector<Setting>& settings, const std::string& key) {
  const auto found = std::ranges::find(settings, key, &Setting::key);
  return found == settings.end() ? "" : found->value;
}

}  // namespace

std::vector<std::string> other_blocks(const RunConfig& of_weights, const RunConfig& here) {
  const ModelOptions before = decided_model(of_weights), now = decided_model(here);
  const std::vector<Setting> settings_before = settings_of_blocks(before);
  std::vector<std::string> lines;
  for (const auto& [key, value] : settings_of_blocks(now)) {
    const std::string other = value_in(settings_before, key);
    if (!other.empty() && other != value)
      lines.push_back(fmt::format("{}: {} in the weights, {} here", key, other, value));
  }
  if (before.composed() != now.composed() && !before.is_plugin() && !now.is_plugin()) {
    const auto kind = [](bool composed) { return composed ? "composed of pieces" : "fixed ones"; };
    lines.push_back(fmt::format("transformer blocks: {} in the weights, {} here", kind(before.composed()),
                                kind(now.composed())));
  }
  return lines;
}

void refuse_other_blocks(const RunConfig& config, const nlohmann::json& state,
                         const std::filesystem::path& checkpoint) {
  const std::string trained = configuration_in(state);
  if (trained.empty()) return;
  const std::vector<std::string> lines = other_blocks(read_leniently(trained), config);
  if (lines.empty()) return;
  throw ConfigError(fmt::format(
      "{}: its weights are of another network than this configuration's:\n  {}\nSet the network as it is in "
      "the weights ({})",
      checkpoint.string(), join(lines, "\n  "), summary_of_configuration(trained)));
}

}  // namespace adtrain
