#include "config/Reference.h"

#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Text.h"

namespace adtrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 100;

/// `text` with line breaks between words, each line beginning with `margin`.
std::string wrapped(const std::string& text, const std::string& margin) {
  std::string lines, line = margin;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kColumns && line != margin) {
      lines += line + "\n";
      line = margin;
    }
    line += (line == margin ? "" : " ") + word;
  }
  return lines + line + "\n";
}

std::string entry_of(const Key& key) {
  std::string allowed = "Allowed: " + key.allowed() + ".";
  if (!key.aliases().empty()) allowed += " Also called " + join(key.aliases(), ", ") + ".";
  if (key.is_free_on_resume()) allowed += fmt::format(" May change on --resume{}.", key.proviso_on_resume());
  return fmt::format("  {}: {}\n", key.name(), key.default_text()) + wrapped(key.sentence(), "      ") +
         wrapped(allowed, "      ");
}

const char* name_of(Key::Type type) {
  switch (type) {
    case Key::Type::kInteger:
      return "integer";
    case Key::Type::kReal:
      return "real";
    case Key::Type::kBoolean:
      return "boolean";
    case Key::Type::kText:
      return "text";
  }
  return "";
}

/// Numbers, truth values, null and quoted texts are written alike in YAML and JSON; bare texts are the rest.
Json json_of_scalar(const std::string& yaml) {
  const Json value = Json::parse(yaml, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(yaml) : value;
}

Json json_of(const Key& key) {
  Json json = {{"name", key.name()},
               {"type", name_of(key.type())},
               {"optional", key.is_optional()},
               {"default", json_of_scalar(key.default_text())},
               {"allowed", key.allowed()},
               {"description", key.sentence()},
               {"free_on_resume", key.is_free_on_resume()}};
  if (!key.unit_name().empty()) json["unit"] = key.unit_name();
  if (!key.choices().empty()) json["choices"] = key.choices();
  if (!key.aliases().empty()) json["aliases"] = key.aliases();
  return json;
}

}  // namespace

std::string explain(const std::vector<Section*>& sections) {
  std::string text;
  for (const Section* section : sections) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", section->title());
    for (const Key& key : section->keys()) text += entry_of(key);
    for (const auto& [name, reason] : section->ignored()) {
      text += wrapped(fmt::format("{}: ignored: {}", name, reason), "  ");
    }
  }
  return text;
}

std::string values_json(const std::vector<Section*>& sections) {
  Json values = Json::object();
  for (const Section* section : sections) {
    for (const Key& key : section->keys()) values[key.name()] = json_of_scalar(key.value_text());
  }
  return values.dump();
}

std::string explain_json(const std::vector<Section*>& sections) {
  Json document = {{"sections", Json::array()}};
  for (const Section* section : sections) {
    Json json = {{"title", section->title()}, {"keys", Json::array()}, {"ignored", Json::array()}};
    for (const Key& key : section->keys()) json["keys"].push_back(json_of(key));
    for (const auto& [name, reason] : section->ignored()) {
      json["ignored"].push_back({{"name", name}, {"reason", reason}});
    }
    document["sections"].push_back(std::move(json));
  }
  return document.dump(2);
}

}  // namespace adtrain
