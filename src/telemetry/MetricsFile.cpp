#include "telemetry/MetricsFile.h"

#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/File.h"

namespace adtrain {

std::map<std::string, Curve> read_metrics(const std::filesystem::path& path) {
  std::map<std::string, Curve> curves;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("step") || !record["step"].is_number_integer()) continue;
    const auto step = record["step"].get<int64_t>();
    for (const auto& [name, value] : record.items()) {
      if (name == "step" || !(value.is_number() || value.is_null())) continue;
      Curve& curve = curves[name];
      if (!curve.x.empty() && curve.x.back() >= step) continue;
      curve.x.push_back(step);
      curve.y.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
  }
  return curves;
}

}  // namespace adtrain
