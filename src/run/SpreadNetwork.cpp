#include "run/SpreadNetwork.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "base/HostMemory.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "evaluation/scoring/SampleBatches.h"
#include "memory/AutoBatchSize.h"
#include "memory/MemoryMeter.h"
#include "model/QuantisedNetwork.h"
#include "placement/GpuShare.h"
#include "run/LoadedNetwork.h"
#include "run/ScoringMemory.h"

namespace adtrain {
namespace {

/// The weights that are quantised once they are loaded, and those that would be before. A checkpoint may hold
/// them so, and then it says which they are, whatever the configuration does.
std::set<std::string> names_quantised(const RunConfig& config, const ParameterBuffer& parameters) {
  if (!parameters.is_quantised()) return quantised_names(config, parameters);
  std::set<std::string> names;
  for (const std::string& name : parameters.linear_weights()) {
    if (parameters.quantised(name) != nullptr) names.insert(name);
  }
  return names;
}

/// The network's modules, with the bytes that quantised weights take where the configuration asks for them.
std::vector<PlacedModule> modules_for(const RunConfig& config, AlgorithmDistillation& model,
                                      at::ScalarType type) {
  const auto how = config.quantisation.weights();
  if (!how) return modules_of(model, type);
  const auto names = names_quantised(config, model.parameters());
  return modules_of(model, QuantisedSize::of(model.parameters(), names, *how, type).parameters);
}

/// Why a mode without limits divides nothing here: there is one device, which holds the whole network. Empty
/// where it does.
std::string why_one_device(const RunConfig& config) {
  if (!config.placement.mode() || config.placement.max_memory) return "";
  const int gpus = SpreadNetwork::takes_gpus(config) ? visible_gpu_count() : 0;
  if (gpus == 0) return "there are no GPUs, and max_memory names no logical devices";
  if (gpus > 1) return "";
  constexpr int64_t kShareOfWeights = 2;  // the rest is for activations
  const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
  const int64_t weights = total_bytes(modules_for(config, *model, loaded_type(config, at::kCUDA)));
  if (kShareOfWeights * weights > visible_gpu(0).memory_bytes) return "";
  return "the one GPU holds the whole network";
}

/// This rank's GPUs, as their numbers on it. Collective.
std::vector<int> own_gpus(const RunConfig& config, const Ranks& ranks) {
  if (config.run.device == DeviceChoice::kCpu) return {};
  std::string identities;
  for (int gpu = 0; gpu < visible_gpu_count(); ++gpu) identities += visible_gpu_uuid(gpu) + "\n";
  std::vector<std::vector<std::string>> seen;
  bool everywhere = true;
  for (const std::string& text : gather_texts(*ranks.communicator, identities)) {
    std::vector<std::string>& gpus = seen.emplace_back();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) gpus.push_back(line);
    everywhere = everywhere && !gpus.empty();
  }
  if (everywhere) return gpus_of_rank(seen, static_cast<size_t>(ranks.context.rank));
  if (config.run.device == DeviceChoice::kCuda) {
    throw EnvironmentError(
        "device: cuda is asked for, but a rank sees no GPU (no driver, or CUDA_VISIBLE_DEVICES hides them); "
        "expected one at least for each rank: set device: cpu for logical devices on the CPU");
  }
  return {};
}

int64_t host_memory_of_rank(const Ranks& ranks) {
  return available_host_memory() / ranks.context.local_world_size;
}

/// Of each device the least that any rank has, for devices that all have.
MemoryLimits least_of_all(const MemoryLimits& mine, const Ranks& ranks) {
  std::string text;
  for (const auto& [gpu, bytes] : mine.gpus) text += fmt::format("{}: {}, ", gpu, bytes);
  MemoryLimits least = mine;
  for (const std::string& other :
       gather_texts(*ranks.communicator, fmt::format("{{{}cpu: {}}}", text, *mine.cpu))) {
    const MemoryLimits limits = MemoryLimits::parse(other);
    std::erase_if(least.gpus, [&](const auto& gpu) { return !limits.gpus.contains(gpu.first); });
    for (auto& [gpu, bytes] : least.gpus) bytes = std::min(bytes, limits.gpus.at(gpu));
    least.cpu = std::min(*least.cpu, *limits.cpu);
  }
  return least;
}

MemoryLimits limits_on_gpus(const RunConfig& config, const Ranks& ranks, const std::vector<int>& gpus) {
  if (auto given = config.placement.limits()) {
    for (const auto& [gpu, bytes] : given->gpus) {
      if (gpu < std::ssize(gpus)) continue;
      throw ConfigError(
          fmt::format("max_memory: found a limit for GPU {}; expected numbers of the GPUs of a rank, of "
                      "which there are {}: 0 to {}",
                      gpu, gpus.size(), std::ssize(gpus) - 1));
    }
    return *given;
  }
  MemoryLimits free;
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpus[gpu]));
    free.gpus[static_cast<int>(gpu)] = MemoryMeter(device, std::nullopt, 1).now().available();
  }
  free.cpu = host_memory_of_rank(ranks);
  return least_of_all(free, ranks);
}

/// The devices that max_memory names, or the user's map; else none but the CPU itself.
MemoryLimits limits_of_logical_devices(const RunConfig& config, const Ranks& ranks) {
  if (auto given = config.placement.limits()) return *given;
  const int64_t memory = host_memory_of_rank(ranks);
  MemoryLimits limits;
  limits.cpu = memory;
  if (config.placement.mode()) return least_of_all(limits, ranks);
  for (const MapDevice& device : devices_in_map(*config.placement.device_map)) {
    if (!device.is_cpu()) limits.gpus[device.gpu] = memory;
  }
  return least_of_all(limits, ranks);
}

/// The first GPU that is there, as all are taken to be alike.
kernels::DeviceTraits traits_of(const std::vector<int>& gpus) {
  if (gpus.empty()) return kernels::DeviceTraits::of(at::kCPU);
  return kernels::DeviceTraits::of(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(gpus.front())));
}

DeviceMap map_of(const PlacementOptions& options, const std::vector<PlacedModule>& modules,
                 const MemoryLimits& limits, const ContextMemory& context) {
  if (const auto mode = options.mode()) return DeviceMap::automatic(modules, limits, *mode, context);
  return DeviceMap::given(*options.device_map, modules, limits, context);
}

/// `most`, halved until `find_map(rows)` is a map with a GPU. Where it never is, halved until it is any, and
/// 1 where it always throws a ConfigError.
template <class FindMap>
int64_t halved_until_it_fits(int64_t most, const FindMap& find_map) {
  int64_t most_on_cpu = 1;
  for (int64_t rows = most; rows > 0; rows /= 2) {
    try {
      if (!find_map(rows).gpus().empty()) return rows;
      most_on_cpu = std::max(most_on_cpu, rows);
    } catch (const ConfigError&) {
      continue;
    }
  }
  return most_on_cpu;
}

/// Where a map leaves all devices unused, though there are some: why. Else "".
std::string why_unused(const DeviceMap& map, const MemoryLimits& limits, const ContextMemory& context,
                       int64_t rows) {
  if (!map.gpus().empty() || limits.gpus.empty()) return "";
  return fmt::format(
      "no GPU of the map holds a module beside {} for a pass of {} row{}: the cpu computes everything",
      human_bytes(static_cast<double>(context.of_gpu)), rows, rows == 1 ? "" : "s");
}

bool spreads(const DeviceMap& map) {
  return std::ranges::any_of(
      map.rows(), [&](const DeviceMap::Row& row) { return row.device != map.rows().front().device; });
}

/// What a user of this map should know; empty where there is nothing. `device`: "GPU", or "device".
std::string remark_on(const DeviceMap& map, const MemoryLimits& limits, const ContextMemory& context,
                      int64_t rows, const char* device) {
  if (!spreads(map) || map.alone_sufficient().is_cpu()) return why_unused(map, limits, context, rows);
  return fmt::format(
      "{0} {1} alone holds the whole network: without device_map it would be faster, with a rank for each "
      "{0}",
      device, map.alone_sufficient().text());
}

}  // namespace

bool SpreadNetwork::is_wanted(const RunConfig& config, std::vector<std::string>& notices) {
  if (!config.placement.device_map) return false;
  if (!config.model.is_plugin()) {
    const std::string one_device = why_one_device(config);
    if (one_device.empty()) return true;
    notices.push_back(
        fmt::format("device_map: {} has no effect: {}", *config.placement.device_map, one_device));
    return false;
  }
  const std::string because = "a plug-in's network runs on one device as a whole";
  if (*config.placement.device_map != "auto") {
    throw ConfigError(fmt::format("{}: found '{}', and {}; expected null or auto",
                                  config.place_of("device_map"), abridged(*config.placement.device_map),
                                  because));
  }
  notices.push_back("device_map: auto has no effect: " + because);
  return false;
}

bool SpreadNetwork::takes_gpus(const RunConfig& config) {
  return config.run.device != DeviceChoice::kCpu && visible_gpu_count() > 0;
}

SpreadNetwork::SpreadNetwork(const RunConfig& config, const Ranks& ranks, AlgorithmDistillation& model,
                             Rows sent)
    : config_(config),
      model_(model),
      sent_(sent),
      gpus_(own_gpus(config, ranks)),
      limits_(gpus_.empty() ? limits_of_logical_devices(config, ranks)
                            : limits_on_gpus(config, ranks, gpus_)),
      modules_(modules_for(config, model, model.parameters().compute_type())) {}

ContextMemory SpreadNetwork::context_for(int64_t rows) const {
  if (sent_ == Rows::kGrowing) return growing_context_memory(config_, model_, traits_of(gpus_), rows);
  return context_memory(config_, traits_of(gpus_), model_.parameters().compute_type(),
                        config_.quantisation.is_on(), rows);
}

int64_t SpreadNetwork::kept_for(int64_t rows) const {
  return sent_ == Rows::kGrowing ? kept_bytes_of_block(model_, rows) : 0;
}

DeviceMap SpreadNetwork::map_for(int64_t rows) const {
  std::vector<PlacedModule> modules = modules_;
  for (PlacedModule& module : modules) module.kept = module.is_block ? kept_for(rows) : 0;
  return map_of(config_.placement, modules, limits_, context_for(rows));
}

int64_t SpreadNetwork::fitting_rows(int64_t most) const {
  return halved_until_it_fits(most, [this](int64_t rows) { return map_for(rows); });
}

void SpreadNetwork::place(int64_t rows) {
  const DeviceMap map = map_for(rows);
  std::vector<at::Device> devices;
  for (const int gpu : gpus_) devices.emplace_back(at::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  for (const int gpu : map.gpus()) {
    if (on_gpus()) gpus_in_use_.push_back(devices.at(static_cast<size_t>(gpu)));
  }
  if (gpus_.empty() && !limits_.gpus.empty())
    devices.assign(static_cast<size_t>(limits_.gpus.rbegin()->first) + 1, at::kCPU);
  placed_ =
      std::make_unique<PlacedNetwork>(model_, modules_, map, devices, model_.parameters().compute_type());
  describe(map, rows);
}

void SpreadNetwork::describe(const DeviceMap& map, int64_t rows) {
  const ContextMemory context = context_for(rows);
  const char* const device = on_gpus() ? "GPU" : "device";
  lines_ = map.table();
  lines_.push_back(fmt::format("{} of each {} for a pass of {} rows; {} stage{}{}",
                               human_bytes(static_cast<double>(context.of_gpu)), device, rows,
                               placed_->stages(), placed_->stages() == 1 ? "" : "s",
                               on_gpus() ? "" : ", logical devices on the CPU"));
  if (const int64_t kept = kept_for(rows); kept > 0) {
    lines_.push_back(fmt::format("{} of keys and values of {} rows for each block, where it is computed",
                                 human_bytes(static_cast<double>(kept)), rows));
  }
  if (map.streaming_buffers() > 0) {
    lines_.push_back(
        fmt::format("what is on the cpu comes to {} {} for each use{}", device, map.streaming_device().text(),
                    map.streaming_buffers() > 1 ? ", while it computes with what came before"
                                                : ", which waits for it: there is no room to come ahead"));
  }
  remark_ = remark_on(map, limits_, context, rows, device);
}

std::string SpreadNetwork::device_name() const {
  return gpus_in_use_.empty() ? "CPU" : visible_gpu(gpus_.front()).name;
}

void SpreadNetwork::show(Console& console) const {
  console.info("device map:");
  for (const std::string& line : lines_) console.info("  " + line);
  if (!remark_.empty()) console.notice(remark_);
}

std::vector<std::string> planned_map(const RunConfig& config) {
  std::vector<std::string> notices;
  const auto limits = config.placement.limits();
  if (!limits || !SpreadNetwork::is_wanted(config, notices)) return {};
  const auto traits = config.run.device == DeviceChoice::kCpu ? kernels::DeviceTraits::of(at::kCPU)
                      : visible_gpu_count() > 0               ? traits_of({0})
                                                              : kernels::DeviceTraits::hopper();
  const auto model = AlgorithmDistillation::without_values(config.model, config.model_shape());
  const at::ScalarType type = loaded_type(config, traits.is_gpu ? at::kCUDA : at::kCPU);
  const std::vector<PlacedModule> modules = modules_for(config, *model, type);
  const auto context_for = [&](int64_t rows) {
    return context_memory(config, traits, type, config.quantisation.is_on(), rows);
  };
  const auto map_for = [&](int64_t rows) {
    return map_of(config.placement, modules, *limits, context_for(rows));
  };
  int64_t rows = config.scoring.score_batch;
  if (rows == kAutoBatchSize) {
    constexpr int64_t kMany = 1 << 30;
    const bool on_gpus = config.run.device != DeviceChoice::kCpu;
    rows = halved_until_it_fits(automatic_score_batch(kMany, config.model.n_transit, on_gpus), map_for);
  }
  std::vector<std::string> lines = {
      fmt::format("device map within max_memory, with {} for a pass of {} rows in {} on each GPU:",
                  human_bytes(static_cast<double>(context_for(rows).of_gpu)), rows, precision_name(type))};
  const DeviceMap map = map_for(rows);
  for (std::string& line : map.table()) lines.push_back("  " + std::move(line));
  const char* const device = config.run.device == DeviceChoice::kCpu ? "device" : "GPU";
  if (std::string remark = remark_on(map, *limits, context_for(rows), rows, device); !remark.empty())
    lines.push_back(std::move(remark));
  return lines;
}

}  // namespace adtrain
