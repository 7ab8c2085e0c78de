#include "run/checkpoints/ImportedConfig.h"

#include <set>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "config/Binder.h"
#include "config/Document.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr const char* kSource = "the source's configuration";

std::set<std::string> known_names() {
  RunConfig config;
  std::set<std::string> names;
  for (const Section& section : config.sections()) {
    for (const Key& key : section.keys()) {
      names.insert(key.name());
      names.insert(key.aliases().begin(), key.aliases().end());
    }
    for (const auto& [name, reason] : section.ignored()) names.insert(name);
  }
  return names;
}

/// The source's settings that mean something here.
void put_settings(const json& settings, Document& document, std::vector<std::string>& notices) {
  const std::set<std::string> known = known_names();
  std::vector<std::string> unknown;
  for (const auto& [name, value] : settings.items()) {
    if (name == "device" || name == "log_dir") continue;
    if (!known.contains(name) || value.is_structured()) {
      unknown.push_back(name);
    } else if (name == "mixed_precision" && value == "fp32") {
      document.set("mixed_precision=\"no\"", kSource);
    } else {
      document.set(fmt::format("{}={}", name, value.dump(-1, ' ', false, json::error_handler_t::replace)),
                   kSource);
    }
  }
  if (!unknown.empty())
    notices.push_back("left out of the source's configuration, as unknown here: " +
                      abridged(join(unknown, ", "), 600));
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The block never stands in the projects' configurations, and their post-norm block ignores tf_n_inner.
void put_network(const json& network, Document& document) {
  for (const auto& [name, value] : network.items()) {
    const Entry* const said = document.find(name);
    if (said != nullptr && said->kind == Entry::Kind::kScalar && said->text != "auto" &&
        to_lower(said->text) != to_lower(text_of(value))) {
      throw ConfigError(
          fmt::format("{}: {} is {}, but the tensors' shapes say {}: give the configuration that they "
                      "were trained with by --config",
                      said->origin.text(), name, said->text, text_of(value)));
    }
    document.set(fmt::format("{}={}", name, value.dump()), "the tensors' shapes");
  }
}

/// The project's post-norm layers have PyTorch's default dropout, whatever its configuration says.
void put_dropout(const json& network, Document& document, std::vector<std::string>& notices) {
  constexpr double kDefault = 0.1;
  if (network.value("transformer_block", "") != "post_norm") return;
  for (const std::string name : {"tf_dropout", "tf_attn_dropout"}) {
    const Entry* const said = document.find(name);
    if (said != nullptr && said->text != fmt::format("{}", kDefault)) {
      notices.push_back(fmt::format("{} = {}: the source's layers ignored the {} that its configuration has",
                                    name, kDefault, said->text));
    }
    document.set(fmt::format("{}={}", name, kDefault), "the source's layers");
  }
}

Document document_in(const std::filesystem::path& yaml) {
  Document document;
  document.read_file(yaml);
  if (!document.errors().empty()) throw ConfigError(join(document.errors(), "\n"));
  return document;
}

}  // namespace

json settings_in(const std::filesystem::path& yaml) {
  const Document document = document_in(yaml);
  json settings = json::object();
  for (const Entry& entry : document.entries()) {
    const bool nested = entry.kind == Entry::Kind::kList || entry.kind == Entry::Kind::kMap;
    settings[entry.key] = nested                             ? json::array()
                          : entry.kind == Entry::Kind::kNull ? json()
                                                             : json(entry.text);
  }
  return settings;
}

RunConfig imported_config(const ImportedSettings& settings, std::vector<std::string>& notices) {
  Document document;
  if (settings.yaml.empty()) {
    put_settings(settings.of_source, document, notices);
    if (settings.of_project) put_dropout(settings.of_network, document, notices);
  } else {
    document = document_in(settings.yaml);
  }
  for (const std::string& assignment : settings.overrides) document.set(assignment);
  if (document.find("tf_n_head") == nullptr) {
    throw ConfigError(
        "the file does not say how many attention heads there are, which no shape shows; expected its "
        "configuration by --config FILE.yaml, or --set tf_n_head=N");
  }
  put_network(settings.of_network, document);
  RunConfig config;
  config.evaluation.eval_terminal_observation = true;
  std::vector<Section> sections = config.sections();
  const auto check = [&config](Findings& findings) {
    config.run.check(findings);
    config.environment.check(findings);
    config.model.check(findings);
    config.training.check(findings);
  };
  for (std::string& notice : Binder(pointers_to(sections)).bind(document, check))
    notices.push_back(std::move(notice));
  config.model.decide();
  return config;
}

}  // namespace adtrain
