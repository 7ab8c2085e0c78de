#include "run/ScoringMemoryTable.h"

#include <cmath>

#include <fmt/format.h>

#include "base/Text.h"
#include "memory/AutoBatchSize.h"
#include "memory/MemoryMeter.h"
#include "run/ScoringMemory.h"

namespace adtrain {
namespace {

int64_t rows_of(const RunConfig& config) {
  return config.scoring.score_batch == kAutoBatchSize ? 1 : config.scoring.score_batch;
}

std::string name_of_run(const RunConfig& config) {
  return config.folder().root.filename().string();
}

std::string millions(int64_t count) {
  return count < 1'000'000 ? grouped(count) : fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
}

/// Two digits behind the point; below a tenth of a GB, where these would say little or nothing, three
/// significant ones.
std::string gigabytes_text(int64_t bytes) {
  constexpr double kSmall = 0.1;
  const double gigabytes = in_gigabytes(bytes);
  if (bytes <= 0 || gigabytes >= kSmall) return fmt::format("{:.2f}", gigabytes);
  const int zeros = -1 - static_cast<int>(std::floor(std::log10(gigabytes)));  // behind the point
  return fmt::format("{:.{}f}", gigabytes, zeros + 3);
}

}  // namespace

std::string scoring_memory_table(const std::vector<RunConfig>& configs, const std::vector<int64_t>& gpus) {
  std::string text = "| model | parameters | windows | type | weights |", rule = "|---|---|---|---|---|";
  for (const int64_t count : gpus) {
    text += count == 1 ? " 1 GPU |" : fmt::format(" {} GPUs |", count);
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const RunConfig& config : configs) {
    const ScoringMemory memory(config);
    for (const auto& [format, name] : kWeightFormats) {
      text +=
          fmt::format("| {} | {} | {} | {} | {} |", name_of_run(config), millions(memory.parameter_count()),
                      rows_of(config), name, gigabytes_text(memory.weight_bytes(format)));
      for (const int64_t count : gpus) {
        text +=
            fmt::format(" {} |", gigabytes_text(memory.fullest_gpu_bytes(format, count, rows_of(config))));
      }
      text += "\n";
    }
  }
  return text;
}

nlohmann::ordered_json scoring_memory_json(const std::vector<RunConfig>& configs,
                                           const std::vector<int64_t>& gpus) {
  using nlohmann::ordered_json;
  ordered_json models = ordered_json::array();
  for (const RunConfig& config : configs) {
    const ScoringMemory memory(config);
    ordered_json model = {{"model", name_of_run(config)},
                          {"parameters", memory.parameter_count()},
                          {"score_batch", rows_of(config)}};
    for (const auto& [format, name] : kWeightFormats) {
      model["weight_bytes"][name] = memory.weight_bytes(format);
      for (const int64_t count : gpus) {
        model["bytes_of_fullest_gpu"][name][std::to_string(count)] =
            memory.fullest_gpu_bytes(format, count, rows_of(config));
      }
    }
    models.push_back(std::move(model));
  }
  return models;
}

}  // namespace adtrain
