#include <ATen/ATen.h>
#include <fmt/format.h>

#include "base/StandardStreams.h"
#include "base/Text.h"
#include "checkpoint/Manifest.h"
#include "checkpoint/TensorStatistics.h"
#include "run/checkpoints/CheckpointCommands.h"
#include "run/checkpoints/CheckpointTarget.h"

namespace adtrain {
namespace {

using nlohmann::json;

json described(const std::vector<NamedTensor>& tensors) {
  json list = json::array();
  for (const auto& [name, tensor] : tensors) {
    const TensorStatistics found = TensorStatistics::of(tensor);
    list.push_back({{"name", name},
                    {"type", c10::toString(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"bytes", tensor.nbytes()},
                    {"minimum", found.minimum},
                    {"maximum", found.maximum},
                    {"mean", found.mean},
                    {"deviation", found.deviation},
                    {"not_finite", found.not_finite}});
  }
  return list;
}

std::string shape_text(const json& tensor) {
  std::vector<std::string> extents;
  for (const json& extent : tensor.at("shape")) extents.push_back(extent.dump());
  return fmt::format("{} ({})", tensor.at("type").get<std::string>(), join(extents, ", "));
}

std::string table_of(const std::string& title, const json& tensors) {
  size_t name_width = title.size(), shape_width = 0;
  int64_t values = 0;
  for (const json& tensor : tensors) {
    name_width = std::max(name_width, tensor.at("name").get<std::string>().size());
    shape_width = std::max(shape_width, shape_text(tensor).size());
    int64_t count = 1;
    for (const json& extent : tensor.at("shape")) count *= extent.get<int64_t>();
    values += count;
  }
  std::string text = fmt::format("\n{:<{}}  {:<{}}  {:>11}  {:>11}  {:>11}  {:>11}\n", title, name_width, "",
                                 shape_width, "minimum", "maximum", "mean", "deviation");
  for (const json& tensor : tensors) {
    text += fmt::format("{:<{}}  {:<{}}", tensor.at("name").get<std::string>(), name_width,
                        shape_text(tensor), shape_width);
    for (const char* figure : {"minimum", "maximum", "mean", "deviation"})
      text += fmt::format("  {:>11.4g}", tensor.at(figure).get<double>());
    const auto not_finite = tensor.at("not_finite").get<int64_t>();
    text += not_finite == 0 ? "\n" : fmt::format("  {} NaN or infinite\n", not_finite);
  }
  return text + fmt::format("{} tensors, {} values\n", tensors.size(), grouped(values));
}

std::string text_of(const json& report) {
  std::string text = fmt::format("{}: after optimizer step {}\n", report.at("path").get<std::string>(),
                                 report.at("step").get<int64_t>());
  const std::string summary = summary_of_configuration(report.at("configuration").get<std::string>());
  text += summary.empty() ? "It does not say with which configuration it was trained.\n" : summary + "\n";
  for (const auto& [name, value] : report.at("state").items())
    text += fmt::format("{}: {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  for (const auto& [name, file] : report.at("files").items()) {
    text += fmt::format("{}: {}, CRC-32 {}\n", name, human_bytes(file.at("bytes").get<double>()),
                        file.at("crc32").get<std::string>());
  }
  return text + table_of("parameters", report.at("model")) + table_of("optimizer", report.at("optimizer"));
}

}  // namespace

ExitCode inspect_checkpoint(const std::filesystem::path& target, bool as_json) {
  const CheckpointStore::Found found = newest_of(target);
  const Manifest manifest = Manifest::read(found.path);
  json state = manifest.state;
  json report = {{"path", found.path.string()},
                 {"step", manifest.step},
                 {"created", manifest.created},
                 {"passed_over", found.passed_over},
                 {"configuration", configuration_in(state)},
                 {"files", json::object()},
                 {"model", described(found.snapshot.model)},
                 {"optimizer", described(found.snapshot.optimizer)}};
  state.erase("configuration");
  report["state"] = state;
  for (const auto& [name, file] : manifest.files)
    report["files"][name] = {{"bytes", file.bytes}, {"crc32", file.crc32}};
  print_answer(as_json ? report.dump(2) + "\n" : text_of(report));
  return ExitCode::kDone;
}

}  // namespace adtrain
