#include "run/throughput/ScoringSpeed.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/File.h"

namespace adtrain {

using nlohmann::ordered_json;

ordered_json ScoringSpeed::json() const {
  return {{"samples", samples},
          {"seconds", seconds()},
          {"samples_per_second", samples_per_second()},
          {"batch", batch},
          {"processes", processes},
          {"device", device},
          {"precision", precision},
          {"gpus", gpus},
          {"memory_peak_bytes", memory_peak},
          {"memory_total_bytes", memory_total},
          {"began", began},
          {"ended", ended}};
}

ScoringSpeed ScoringSpeed::together(const std::vector<ScoringSpeed>& parts) {
  ScoringSpeed all = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const ScoringSpeed& part = parts[i];
    all.samples += part.samples;
    all.began = std::min(all.began, part.began);
    all.ended = std::max(all.ended, part.ended);
    all.processes += part.processes;
    for (const std::string& gpu : part.gpus) {
      if (std::ranges::find(all.gpus, gpu) == all.gpus.end()) all.gpus.push_back(gpu);
    }
    all.memory_peak = std::max(all.memory_peak, part.memory_peak);
    all.memory_total = std::max(all.memory_total, part.memory_total);
  }
  return all;
}

std::filesystem::path ScoringSpeed::file(const std::filesystem::path& folder) {
  return folder / "speed.json";
}

void ScoringSpeed::write(const std::filesystem::path& folder) const {
  write_file_atomically(file(folder), json().dump(2) + "\n");
}

ScoringSpeed ScoringSpeed::read(const std::filesystem::path& folder) {
  const std::filesystem::path path = file(folder);
  try {
    const auto json = nlohmann::json::parse(read_file(path));
    ScoringSpeed speed;
    speed.samples = json.at("samples");
    speed.began = json.at("began");
    speed.ended = json.at("ended");
    speed.batch = json.at("batch");
    speed.processes = json.at("processes");
    speed.device = json.at("device");
    speed.precision = json.at("precision");
    speed.gpus = json.at("gpus");
    speed.memory_peak = json.at("memory_peak_bytes");
    speed.memory_total = json.at("memory_total_bytes");
    return speed;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{}: found no speed ({}); expected what adtrain score --measure writes",
                                path.string(), error.what()));
  }
}

}  // namespace adtrain
