#include "data/formats/MinariMetadata.h"

#include <cmath>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr const char* kStorage = "hdf5";

std::string text_at(const json& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found != metadata.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t count_at(const json& metadata, const char* key, const std::string& origin) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const auto found = metadata.find(key);
  if (found != metadata.end() && found->is_number_integer() && *found >= 1 && *found <= kMost) return *found;
  throw DataError(fmt::format("{}: {} is {}; expected a whole number above 0, as Minari writes it", origin,
                              key, found == metadata.end() ? "missing" : abridged(found->dump())));
}

std::optional<double> score_at(const json& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || !found->is_number()) return std::nullopt;
  const double score = *found;
  return std::isfinite(score) ? std::optional(score) : std::nullopt;
}

/// "Dict" of {"type": "Dict", …}: Minari says first which space it is. "" where there is no such text.
std::string type_in(const std::string& space) {
  static const std::regex kType(R"re("type"\s*:\s*"(\w{1,40})")re");
  std::smatch found;
  return std::regex_search(space, found, kType) ? found[1].str() : "";
}

/// `what` is "observation" or "action".
Space space_of(const json& metadata, const std::string& what, const std::string& origin) {
  const std::string key = what + "_space", text = text_at(metadata, key.c_str());
  if (text.empty()) {
    throw DataError(
        fmt::format("{}: {} is missing; expected the space's JSON as a text, as Minari 0.4 and later write "
                    "it: make the data set anew with one of these",
                    origin, key));
  }
  const std::string type = type_in(text);
  if (type != "Dict" && type != "Tuple" && type != "Text" && type != "MultiBinary" && type != "Graph")
    return Space::from_json(text, fmt::format("{}: {}", origin, key));
  throw DataError(fmt::format(
      "{}: {} is of Gymnasium's type {}, which is not supported; expected Discrete, MultiDiscrete or Box: "
      "make the data set anew from an environment that is wrapped so that its {}s are one array, as {} does",
      origin, key, type, what,
      what == "action" ? "gymnasium.wrappers.TransformAction" : "gymnasium.wrappers.FlattenObservation"));
}

/// "CartPole-v1" of {"id": "CartPole-v1", …}, which is a text too.
std::string environment_in(const std::string& spec) {
  const json read = json::parse(spec, nullptr, /*allow_exceptions=*/false);
  return read.is_object() ? text_at(read, "id") : "";
}

}  // namespace

MinariMetadata MinariMetadata::parse(const std::string& text, const std::string& origin) {
  const json read = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object())
    throw DataError(fmt::format(
        "{}: is no JSON object; expected what Minari says of a data set; fetch it again", origin));
  const std::string storage = read.contains("data_format") ? text_at(read, "data_format") : kStorage;
  if (storage != kStorage) {
    throw DataError(
        fmt::format("{}: data_format is '{}'; expected '{}': make the data set anew with data_format=\"{}\", "
                    "which minari.DataCollector and minari.create_dataset_from_buffers take",
                    origin, abridged(storage), kStorage, kStorage));
  }
  MinariMetadata metadata;
  metadata.name = text_at(read, "dataset_id");
  metadata.environment = environment_in(text_at(read, "env_spec"));
  metadata.observation = space_of(read, "observation", origin);
  metadata.action = space_of(read, "action", origin);
  metadata.episodes = count_at(read, "total_episodes", origin);
  metadata.steps = count_at(read, "total_steps", origin);
  metadata.random_score = score_at(read, "ref_min_score");
  metadata.expert_score = score_at(read, "ref_max_score");
  return metadata;
}

}  // namespace adtrain
