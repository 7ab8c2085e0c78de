#include "run/RunRecord.h"

#include <nlohmann/json.hpp>

#include "base/Clock.h"
#include "base/File.h"
#include "base/Host.h"
#include "run/EnvironmentReport.h"

namespace adtrain {
namespace {

using Json = nlohmann::ordered_json;

/// The starts that the file records; none where it does not exist or is damaged.
Json starts_in(const std::filesystem::path& file) {
  try {
    const Json record = Json::parse(read_file(file));
    const auto starts = record.find("starts");
    return starts != record.end() && starts->is_array() ? *starts : Json::array();
  } catch (const Json::exception&) {
    return Json::array();
  } catch (const std::filesystem::filesystem_error&) {
    return Json::array();
  }
}

}  // namespace

void record_start(const RunFolder& folder, const RunConfig& config, const RunStart& start, bool continues) {
  Json starts = continues ? starts_in(folder.record()) : Json::array();
  starts.push_back({{"time", unix_seconds()},
                    {"after_step", start.after_step},
                    {"host", host_name()},
                    {"launcher", start.launcher},
                    {"ranks", start.ranks},
                    {"device", start.device},
                    {"program", program_identity()}});
  const Json record = {{"run", folder.root.filename().string()},
                       {"configuration", Json::parse(config.resolved_json())},
                       {"starts", std::move(starts)}};
  write_file_atomically(folder.record(), record.dump(2) + "\n");
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
