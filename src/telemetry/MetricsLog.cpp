#include "telemetry/MetricsLog.h"

#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "base/File.h"

namespace adtrain {
namespace {

bool is_before(const std::string& line, int64_t first_step) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return false;
  const auto step = record.find("step");
  return step != record.end() && step->is_number() && step->get<double>() < static_cast<double>(first_step);
}

const std::filesystem::path& cut_at(const std::filesystem::path& path, int64_t first_step) {
  if (!std::filesystem::exists(path)) return path;
  const std::string old = read_file(path);
  std::istringstream lines(old);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (is_before(line, first_step)) kept += line + "\n";
  }
  if (kept != old) write_file_atomically(path, kept);
  return path;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t first_step)
    : file_(cut_at(path, first_step)) {}

void MetricsLog::record(const nlohmann::ordered_json& object) {
  nlohmann::ordered_json line = object;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_number_float() || std::isfinite(value.get<double>())) continue;
    line[name] = nullptr;
    line["non_finite"][name] = fmt::format("{}", value.get<double>());
  }
  file_.append(line.dump() + "\n");
}

}  // namespace adtrain
