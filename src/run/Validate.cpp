#include "run/Validate.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/StandardStreams.h"
#include "config/Reference.h"
#include "run/KernelReport.h"
#include "run/RunConfig.h"

namespace adtrain {

ExitCode validate(const std::filesystem::path& config_file, const std::vector<std::string>& overrides,
                  bool json) {
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(config_file, overrides, notices);
  if (json) {
    const nlohmann::json report = {{"valid", true},
                                   {"notices", notices},
                                   {"resolved", config.resolved_yaml()},
                                   {"kernels", as_json(kernel_reports(config))}};
    print_answer(report.dump(2) + "\n");
    return ExitCode::kDone;
  }
  std::string text = config.resolved_yaml() + "\n";
  text += as_text(kernel_reports(config), "# ");
  for (const std::string& notice : notices) text += fmt::format("# notice: {}\n", notice);
  text += fmt::format("# {} is valid: the run would live in {}, with histories from {}\n",
                      config_file.string(), config.folder().root.string(), config.history_file().string());
  print_answer(text);
  return ExitCode::kDone;
}

ExitCode explain_configuration(bool json) {
  RunConfig defaults;
  std::vector<Section> sections = defaults.sections();
  print_answer((json ? explain_json(pointers_to(sections)) : explain(pointers_to(sections))) + "\n");
  return ExitCode::kDone;
}

}  // namespace adtrain
