#include "evaluation/EvaluationSummary.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"

namespace adtrain {
namespace {

std::optional<double> number_if_there(const nlohmann::ordered_json& object, const char* key) {
  if (!object.contains(key)) return std::nullopt;
  return object.at(key).get<double>();
}

}  // namespace

EvaluationSummary EvaluationSummary::read(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "summary.json";
  try {
    EvaluationSummary summary;
    summary.folder = folder;
    summary.name = folder.filename().string();
    summary.identity = nlohmann::ordered_json::parse(read_file(file));
    summary.mean = summary.identity.at("mean").get<std::vector<double>>();
    summary.last10_mean = summary.identity.at("last10_mean").get<double>();
    summary.random_floor = number_if_there(summary.identity, "random_floor");
    summary.oracle = number_if_there(summary.identity, "oracle");
    for (const std::string_view result : kEvaluationResults) summary.identity.erase(std::string(result));
    return summary;
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format("{}: {}; expected what adtrain evaluate writes: evaluate again",
                                file.string(), error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    throw DataError(fmt::format("{}; expected what adtrain evaluate writes there", error.what()));
  }
}

}  // namespace adtrain
