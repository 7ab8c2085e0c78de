#include "run/Validate.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "config/Reference.h"
#include "run/RunConfig.h"

namespace adtrain {

ExitCode validate(const std::filesystem::path& config_file, const std::vector<std::string>& overrides,
                  bool json) {
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(config_file, overrides, notices);
  if (json) {
    const nlohmann::json report = {
        {"valid", true}, {"notices", notices}, {"resolved", config.resolved_yaml()}};
    fmt::print("{}\n", report.dump(2));
    return ExitCode::kDone;
  }
  fmt::print("{}\n", config.resolved_yaml());
  for (const std::string& notice : notices) fmt::print("# notice: {}\n", notice);
  fmt::print("# {} is valid: the run would live in {}, with histories from {}\n", config_file.string(),
             config.folder().root.string(), config.history_file().string());
  return ExitCode::kDone;
}

ExitCode explain_configuration(bool json) {
  RunConfig defaults;
  std::vector<Section> sections = defaults.sections();
  fmt::print("{}\n", json ? explain_json(pointers_to(sections)) : explain(pointers_to(sections)));
  return ExitCode::kDone;
}

}  // namespace adtrain
