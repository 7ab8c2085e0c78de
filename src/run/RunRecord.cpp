#include "run/RunRecord.h"

#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/File.h"
#include "base/Host.h"
#include "run/EnvironmentReport.h"

namespace adtrain {
namespace {

using Json = nlohmann::ordered_json;

/// What the file holds; an empty object where it does not exist or is damaged.
Json record_in(const std::filesystem::path& file) {
  try {
    Json record = Json::parse(read_file(file));
    return record.is_object() ? record : Json::object();
  } catch (const Json::exception&) {
    return Json::object();
  } catch (const std::filesystem::filesystem_error&) {
    return Json::object();
  }
}

Json starts_in(const Json& record) {
  const auto found = record.find("starts");
  return found != record.end() && found->is_array() ? *found : Json::array();
}

}  // namespace

void record_start(const RunFolder& folder, const RunConfig& config, const RunStart& start, bool continues,
                  const Json& init_from) {
  const Json before = continues ? record_in(folder.record()) : Json::object();
  Json starts = starts_in(before);
  starts.push_back({{"time", unix_seconds()},
                    {"after_step", start.after_step},
                    {"host", host_name()},
                    {"launcher", start.launcher},
                    {"ranks", start.ranks},
                    {"device", start.device},
                    {"program", program_identity()}});
  Json record = {{"run", folder.root.filename().string()},
                 {"configuration", Json::parse(config.resolved_json())},
                 {"starts", std::move(starts)}};
  if (const Json begun = before.value("init_from", init_from); !begun.is_null()) record["init_from"] = begun;
  write_file_atomically(folder.record(), record.dump(2) + "\n");
}

Json first_start(const RunFolder& folder) {
  const Json starts = starts_in(record_in(folder.record()));
  return starts.empty() ? Json() : starts.front();
}

Hyperparameters hyperparameters_of(const RunConfig& config) {
  Hyperparameters given;
  const Json values = Json::parse(config.resolved_json());
  for (const auto& [name, value] : values.items()) {
    if (value.is_boolean()) {
      given.emplace_back(name, value.get<bool>());
    } else if (value.is_number()) {
      given.emplace_back(name, value.get<double>());
    } else if (value.is_string()) {
      given.emplace_back(name, value.get<std::string>());
    }
  }
  return given;
}

}  // namespace adtrain
