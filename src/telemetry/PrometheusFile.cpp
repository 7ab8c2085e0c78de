#include "telemetry/PrometheusFile.h"

#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/File.h"

namespace adtrain {
namespace {

std::string label(const std::string& name, const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return fmt::format("{}=\"{}\"", name, escaped);
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

PrometheusFile::PrometheusFile(std::filesystem::path path, std::string run)
    : path_(std::move(path)), run_(std::move(run)) {}

void PrometheusFile::set(const std::string& name, double value,
                         const std::map<std::string, std::string>& labels) {
  std::string text = label("run", run_);
  for (const auto& [key, content] : labels) text += "," + label(key, content);
  figures_["adtrain_" + name][text] = value;
}

void PrometheusFile::write() {
  if (!next_ || next_->passed()) write_now();
}

void PrometheusFile::write_now() {
  next_.emplace(kSecondsBetween);
  std::string text;
  for (const auto& [name, samples] : figures_) {
    text += fmt::format("# TYPE {} gauge\n", name);
    for (const auto& [labels, value] : samples)
      text += fmt::format("{}{{{}}} {}\n", name, labels, number(value));
  }
  try {
    write_file_atomically(path_, text);
    failure_.clear();
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

}  // namespace adtrain
