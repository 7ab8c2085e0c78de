#include "run/throughput/ThroughputRows.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

constexpr int64_t kMostProcesses = 1024;

std::vector<std::string> first_of(const std::vector<std::string>& gpus, int64_t count) {
  return {gpus.begin(), gpus.begin() + std::min(count, std::ssize(gpus))};
}

int64_t processes_of(const ThroughputPlan& plan, const ThroughputMachine& machine) {
  const int64_t gpus = std::ssize(machine.gpus);
  if (plan.processes < 0 || plan.processes > kMostProcesses) {
    throw ConfigError(
        fmt::format("--nproc: found {}; expected 1 to {} processes", plan.processes, kMostProcesses));
  }
  if (gpus > 0 && plan.processes > gpus) {
    throw ConfigError(fmt::format("--nproc: found {}, and {} GPU{} visible; expected a GPU for each",
                                  plan.processes, gpus, gpus == 1 ? " is" : "s are"));
  }
  if (plan.processes > 0) return plan.processes;
  return gpus > 0 ? gpus : 2;
}

void check_keys(const std::vector<std::string>& keys) {
  const std::vector<std::string>& known = throughput_row_keys();
  for (const std::string& key : keys) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string nearest = nearest_name(key, known);
    throw ConfigError(fmt::format("--rows: found '{}'; expected some of {}{}", abridged(key),
                                  join(known, ","),
                                  nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
  }
}

/// Of logical devices on the CPU, to which nothing is given but by number.
std::string equal_limits(int64_t devices, int64_t memory) {
  std::vector<std::string> limits;
  for (int64_t device = 0; device < devices; ++device)
    limits.push_back(fmt::format("{}: {}", device, memory / devices));
  return fmt::format("max_memory={{{}}}", join(limits, ", "));
}

}  // namespace

std::string ThroughputRow::gpus_of(int64_t process) const {
  if (processes == 1 || gpus.empty()) return join(gpus, ",");
  return gpus.at(static_cast<size_t>(process));
}

const std::vector<std::string>& throughput_row_keys() {
  static const std::vector<std::string> kKeys = {
      "sequential",       "batched", "auto", "bf16",    "ranks",      "processes",
      "device_map",       "int8",    "int4", "pytorch", "accelerate", "bitsandbytes_8bit",
      "bitsandbytes_4bit"};
  return kKeys;
}

std::vector<ThroughputRow> throughput_rows(const ThroughputPlan& plan, const ThroughputMachine& machine) {
  check_keys(plan.rows);
  const int64_t several = processes_of(plan, machine);
  const bool on_cpu = machine.gpus.empty();
  std::vector<ThroughputRow> rows;
  // Refers to the row until the next one is added.
  const auto add = [&](const char* key, const std::string& name,
                       std::vector<std::string> settings) -> ThroughputRow& {
    settings.insert(settings.begin(), "device_map=null");
    rows.push_back(
        {.key = key, .name = name, .settings = std::move(settings), .gpus = first_of(machine.gpus, 1)});
    return rows.back();
  };
  ThroughputRow& sequential = add("sequential", "one at a time", {"score_batch=1"});
  if (on_cpu) sequential.settings.emplace_back("cpu_threads=1");
  add("batched", fmt::format("batches of {}", plan.batch), {fmt::format("score_batch={}", plan.batch)});
  add("auto", "automatic batch", {"score_batch=auto"});
  add("bf16", "bf16", {"score_batch=auto", "torch_dtype=bf16"});

  const std::string too_few = several > 1 ? ""
                              : on_cpu    ? "--nproc is 1; expected 2 or more"
                                          : "one GPU; expected 2 or more";
  ThroughputRow& ranks = add("ranks", counted(several, "rank", "ranks"), {"score_batch=auto"});
  ranks.ranks = several;
  const std::vector<std::string> gpus = ranks.gpus = first_of(machine.gpus, several);
  ranks.not_here = too_few;
  ThroughputRow& processes = add("processes", counted(several, "process", "processes"), {"score_batch=auto"});
  processes.processes = several;
  processes.gpus = gpus;
  processes.not_here = too_few;
  if (on_cpu && !plan.sets_threads) {
    processes.settings.push_back(
        fmt::format("cpu_threads={}", std::max<int64_t>(1, machine.cores / several)));
  }
  const int64_t devices = plan.limited_devices.value_or(several);
  ThroughputRow& map =
      add("device_map",
          "map, " + (on_cpu ? counted(devices, "device", "devices") : counted(devices, "GPU", "GPUs")),
          {"score_batch=auto"});
  // The user says which devices there are, not --nproc.
  const bool chosen = plan.sets_map || plan.limited_devices;
  map.gpus = chosen ? machine.gpus : gpus;
  map.not_here = chosen ? "" : too_few;
  map.settings.erase(map.settings.begin());
  if (plan.sets_map) {
    map.name = "your map";
  } else {
    map.settings.emplace_back("device_map=balanced");
    if (on_cpu && !chosen) map.settings.push_back(equal_limits(several, machine.memory));
  }

  const std::string quantised =
      plan.quantised.empty() ? "" : fmt::format("the weights of all rows are in {} already", plan.quantised);
  add("int8", "8 bit", {"score_batch=auto", "load_in_8bit=true"}).not_here = quantised;
  add("int4", "4 bit", {"score_batch=auto", "load_in_4bit=true"}).not_here = quantised;

  const auto add_peer = [&](const char* way, const std::string& name) -> ThroughputRow& {
    ThroughputRow& row = add(way, name, {});
    row.settings.clear();
    row.peer = {"--way",       way,
                "--batch",     std::to_string(plan.batch),
                "--precision", plan.precision,
                "--device",    on_cpu ? "cpu" : "cuda"};
    return row;
  };
  add_peer("pytorch", "PyTorch");
  ThroughputRow& accelerate = add_peer("accelerate", "accelerate");
  accelerate.gpus = gpus;
  accelerate.not_here = on_cpu ? "no GPU; expected 2 or more" : too_few;
  for (const int bits : {8, 4})
    add_peer(fmt::format("bitsandbytes_{}bit", bits).c_str(), fmt::format("bitsandbytes {}", bits));

  if (plan.rows.empty() && !plan.peers) std::erase_if(rows, &ThroughputRow::is_peer);
  if (!plan.rows.empty()) {
    std::erase_if(rows, [&](const ThroughputRow& row) {
      return std::ranges::find(plan.rows, row.key) == plan.rows.end();
    });
  }
  return rows;
}

}  // namespace adtrain
