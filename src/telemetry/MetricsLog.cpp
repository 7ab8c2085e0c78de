#include "telemetry/MetricsLog.h"

#include <sstream>
#include <string>

#include "base/File.h"

namespace adtrain {
namespace {

bool is_before(const std::string& line, int64_t first_step) {
  const nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  return record.is_object() && record.value("step", int64_t{0}) < first_step;
}

const std::filesystem::path& cut_at(const std::filesystem::path& path, int64_t first_step) {
  if (!std::filesystem::exists(path)) return path;
  std::istringstream lines(read_file(path));
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (is_before(line, first_step)) kept += line + "\n";
  }
  write_file_atomically(path, kept);
  return path;
}

}  // namespace

MetricsLog::MetricsLog(const std::filesystem::path& path, int64_t first_step) : file_(cut_at(path, first_step)) {}

void MetricsLog::record(const nlohmann::ordered_json& object) {
  file_.append(object.dump() + "\n");
  file_.flush();
}

}  // namespace adtrain
