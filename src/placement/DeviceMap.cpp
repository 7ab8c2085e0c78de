#include "placement/DeviceMap.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

/// What GPUs may hold of modules, without the memory of activations.
std::map<int, int64_t> without_activations(const MemoryLimits& limits, const ContextMemory& context) {
  std::map<int, int64_t> left;
  for (const auto& [gpu, bytes] : limits.gpus) left[gpu] = std::max<int64_t>(0, bytes - context.of_gpu);
  return left;
}

/// By so much a GPU may exceed its equal share: modules cannot be cut.
int64_t buffer_of(const std::vector<PlacedModule>& modules) {
  int64_t largest_block = 0, sum = 0, layers = 0;
  for (const PlacedModule& module : modules) {
    if (module.is_block) largest_block = std::max(largest_block, module.bytes + module.kept);
    sum += std::accumulate(module.layers.begin(), module.layers.end(), int64_t{0});
    layers += std::ssize(module.layers);
  }
  const int64_t mean_layer = sum / std::max<int64_t>(layers, 1);
  return 5 * std::max(largest_block, mean_layer) / 4;
}

std::map<int, int64_t> balanced(std::map<int, int64_t> gpus, const std::vector<PlacedModule>& modules,
                                bool from_user, bool low_0) {
  std::vector<int> numbers;
  for (const auto& [gpu, bytes] : gpus) {
    if (bytes > 0) numbers.push_back(gpu);
  }
  const int64_t count = std::ssize(numbers);
  if (count == 0) return gpus;
  if (count == 1) {
    if (!from_user) gpus[numbers.front()] = 9 * gpus[numbers.front()] / 10;
    return gpus;
  }
  const int64_t total = total_bytes(modules) + total_kept(modules);
  const int64_t share = total / (low_0 ? count - 1 : count) + buffer_of(modules);
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    if (low_0 && i == 0) continue;
    gpus[numbers[i]] = std::min(gpus[numbers[i]], share);
  }
  if (low_0) {
    int64_t others = 0;
    for (size_t i = 1; i < numbers.size(); ++i) others += gpus[numbers[i]];
    int64_t& first = gpus[numbers.front()];
    first = std::min(first, std::max<int64_t>(0, total - others));
  }
  return gpus;
}

/// A device while it is filled.
struct Filling {
  MapDevice device;
  int64_t limit = 0;
  int64_t rooms = 0;  ///< so often it keeps room for the largest module that is not placed yet
  int64_t used = 0;
};

std::vector<Filling> in_order_of_filling(const std::map<int, int64_t>& gpus,
                                         const std::optional<int64_t>& cpu, int64_t rooms_of_first) {
  std::vector<Filling> devices;
  for (const auto& [gpu, bytes] : gpus)
    devices.push_back({.device = {gpu}, .limit = bytes, .rooms = devices.empty() ? rooms_of_first : 0});
  if (cpu) devices.push_back({.device = {}, .limit = *cpu, .rooms = 1});
  return devices;
}

/// Of a module and all that share tensors with it, in whatever way.
std::vector<size_t> together_with(size_t first, const std::vector<PlacedModule>& modules) {
  std::set<size_t> found = {first};
  std::deque<size_t> open = {first};
  for (; !open.empty(); open.pop_front()) {
    for (const size_t other : modules[open.front()].shares_with) {
      if (found.insert(other).second) open.push_back(other);
    }
  }
  return {found.begin(), found.end()};
}

[[noreturn]] void throw_left_over(const std::vector<PlacedModule>& modules,
                                  const std::vector<std::optional<MapDevice>>& placed, size_t first,
                                  const MemoryLimits& limits, const ContextMemory& context) {
  int64_t missing = 0, kept = 0, count = 0;
  for (size_t i = 0; i < modules.size(); ++i) {
    if (placed[i]) continue;
    missing += modules[i].bytes;
    kept += modules[i].kept;
    ++count;
  }
  std::vector<std::string> given;
  for (const auto& [gpu, bytes] : limits.gpus)
    given.push_back(fmt::format("GPU {} {}", gpu, human_bytes(static_cast<double>(bytes))));
  given.push_back(limits.cpu ? fmt::format("cpu {}", human_bytes(static_cast<double>(*limits.cpu)))
                             : "cpu nothing");
  throw ConfigError(fmt::format(
      "device_map: {}{}, {} of the network's {}{}, found no room, with {} of each GPU for activations; the "
      "limits are {}, of which the first GPU and the cpu keep room for the largest module to come; expected "
      "more: raise max_memory{}, or let fewer windows or trials go through the network at once "
      "(score_batch, eval_batch)",
      modules[first].name, count > 1 ? fmt::format(" and {} others", count - 1) : "",
      human_bytes(static_cast<double>(missing)), human_bytes(static_cast<double>(total_bytes(modules))),
      kept == 0 ? "" : fmt::format(" and {} of keys and values", human_bytes(static_cast<double>(kept))),
      human_bytes(static_cast<double>(context.of_gpu)), join(given, ", "),
      limits.cpu ? "" : ", for example with cpu: 30GiB in it"));
}

}  // namespace

DeviceMap::DeviceMap(const std::vector<PlacedModule>& modules, std::vector<MapDevice> devices,
                     const MemoryLimits& limits, const ContextMemory& context) {
  std::map<int, int64_t> spare = limits.gpus;
  for (auto& [gpu, bytes] : spare) bytes -= context.of_gpu;
  int64_t spare_of_cpu = limits.cpu.value_or(0);
  const bool on_gpus = std::ranges::any_of(devices, [](const MapDevice& one) { return !one.is_cpu(); });
  for (size_t i = 0; i < modules.size(); ++i) {
    const MapDevice& device = devices[i];
    int64_t& left = device.is_cpu() ? spare_of_cpu : spare[device.gpu];
    const bool streams = on_gpus && device.is_cpu();
    left -= modules[i].bytes + (streams ? 0 : modules[i].kept);
    if (streams) kept_by_streamed_ += modules[i].kept;
    rows_.push_back({modules[i].name, device, modules[i].bytes, left});
  }
  spare_ = std::move(spare);
  for (const auto& [gpu, bytes] : without_activations(limits, context)) {
    if (bytes < total_bytes(modules) + total_kept(modules)) continue;
    alone_ = {gpu};
    break;
  }
}

DeviceMap DeviceMap::automatic(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                               MapMode mode, const ContextMemory& context) {
  std::map<int, int64_t> gpus = without_activations(limits, context);
  if (mode != MapMode::kSequential)
    gpus = balanced(std::move(gpus), modules, limits.from_user, mode == MapMode::kBalancedLow0);
  DeviceMap map = filled_with_room(modules, limits, gpus, /*rooms=*/1, context);
  const bool streams = std::ranges::any_of(map.rows_, [](const Row& row) { return row.device.is_cpu(); }) &&
                       !map.gpus().empty();
  if (!streams || context.streamed <= 1) return map;
  try {
    DeviceMap roomier = filled_with_room(modules, limits, gpus, context.streamed, context);
    if (!roomier.gpus().empty()) return roomier;  // else no GPU would compute
  } catch (const ConfigError&) {
    // The CPU may not hold more.
  }
  return map;
}

DeviceMap DeviceMap::filled_with_room(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                                      std::map<int, int64_t> gpus, int64_t rooms,
                                      const ContextMemory& context) {
  std::optional<DeviceMap> before;
  for (int64_t room = 0;;) {
    DeviceMap map = filled(modules, limits, gpus, rooms, context);
    if (before && map.gpus().empty()) {
      before->check_room_to_stream();
      return *before;
    }
    if (map.kept_by_streamed_ == 0 || map.has_room_to_stream(rooms)) return map;
    const int64_t more = map.kept_by_streamed_ - room;
    if (more <= 0) {
      map.check_room_to_stream();
      return map;
    }
    int64_t& first = gpus.begin()->second;  // the less it holds, the more is on the CPU: in the end all is
    first = std::max<int64_t>(0, first - more);
    room += more;
    before = std::move(map);
  }
}

DeviceMap DeviceMap::filled(const std::vector<PlacedModule>& modules, const MemoryLimits& limits,
                            const std::map<int, int64_t>& gpus, int64_t rooms, const ContextMemory& context) {
  std::vector<Filling> devices = in_order_of_filling(gpus, limits.cpu, rooms);
  std::vector<std::optional<MapDevice>> placed(modules.size());
  auto device = devices.begin();
  for (size_t i = 0; i < modules.size(); ++i) {
    if (placed[i]) continue;
    int64_t size = 0, kept = 0, room = 0;
    const std::vector<size_t> together = together_with(i, modules);
    for (const size_t j : together) size += modules[j].bytes;
    for (const size_t j : together) kept += modules[j].kept;
    for (size_t j = i + 1; j < modules.size(); ++j) {
      if (!placed[j]) room = std::max(room, modules[j].bytes);
    }
    const auto taken = [&] { return size + (device->device.is_cpu() && !gpus.empty() ? 0 : kept); };
    while (device != devices.end() && device->used + taken() > device->limit - device->rooms * room) ++device;
    if (device == devices.end()) throw_left_over(modules, placed, i, limits, context);
    device->used += taken();
    for (const size_t j : together) placed[j] = device->device;
  }
  std::vector<MapDevice> found;
  for (const std::optional<MapDevice>& one : placed) found.push_back(*one);
  return {modules, std::move(found), limits, context};
}

std::vector<int> DeviceMap::gpus() const {
  std::set<int> found;
  for (const Row& row : rows_) {
    if (!row.device.is_cpu()) found.insert(row.device.gpu);
  }
  return {found.begin(), found.end()};
}

MapDevice DeviceMap::streaming_device() const {
  MapDevice best;
  for (const int gpu : gpus()) {
    if (best.is_cpu() || spare_.at(gpu) > spare_.at(best.gpu)) best = {gpu};
  }
  return best;
}

int64_t DeviceMap::room_to_stream() const {
  int64_t sum = 0, largest = 0;
  for (const Row& row : rows_) {
    if (!row.device.is_cpu()) sum += std::exchange(largest, 0);
    if (row.device.is_cpu()) largest = std::max(largest, row.bytes);
  }
  return sum + largest;
}

int64_t DeviceMap::streaming_buffers() const {
  if (streaming_device().is_cpu() || room_to_stream() == 0) return 0;
  return has_room_to_stream(2) ? 2 : 1;
}

bool DeviceMap::has_room_to_stream(int64_t buffers) const {
  const MapDevice computes = streaming_device();
  return computes.is_cpu() || spare_.at(computes.gpu) - kept_by_streamed_ >= buffers * room_to_stream();
}

void DeviceMap::check_room_to_stream() const {
  if (has_room_to_stream(1)) return;
  const MapDevice computes = streaming_device();
  throw ConfigError(fmt::format(
      "device_map: what is on the cpu comes to a GPU to be computed, {} at once{}, and GPU {} has the most "
      "spare memory, {}; expected a map that leaves so much: move modules to other GPUs{}",
      human_bytes(static_cast<double>(room_to_stream())),
      kept_by_streamed_ == 0 ? ""
                             : fmt::format(", beside {} of keys and values that it keeps there",
                                           human_bytes(static_cast<double>(kept_by_streamed_))),
      computes.gpu, human_bytes(static_cast<double>(spare_.at(computes.gpu))),
      kept_by_streamed_ == 0 ? " or to the cpu"
                             : ", let fewer trials go through the network at once (eval_batch), or "
                               "set eval_context: recompute, which keeps none"));
}

std::vector<std::string> DeviceMap::table() const {
  struct Line {
    std::string module, device, bytes, spare;
  };
  std::vector<Line> lines = {{"module", "device", "bytes", "spare"}};
  for (size_t i = 0; i < rows_.size();) {
    size_t end = i + 1;
    while (end < rows_.size() && rows_[end].device == rows_[i].device && rows_[end].bytes == rows_[i].bytes)
      ++end;
    std::string name = rows_[i].module;
    if (end - i > 1) name += fmt::format(" … {}", rows_[end - 1].module);
    std::string bytes = grouped(rows_[i].bytes);
    if (end - i > 1) bytes = fmt::format("{} × {}", end - i, bytes);
    lines.push_back({name, rows_[i].device.text(), bytes, grouped(rows_[end - 1].spare)});
    i = end;
  }
  // "…" and "×" take one column and several bytes.
  const auto columns = [](const std::string& text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  };
  size_t of_module = 0, of_bytes = 0, of_spare = 0;
  for (const Line& line : lines) {
    of_module = std::max(of_module, columns(line.module));
    of_bytes = std::max(of_bytes, columns(line.bytes));
    of_spare = std::max(of_spare, columns(line.spare));
  }
  const auto blanks = [](size_t count) { return std::string(count, ' '); };
  std::vector<std::string> text;
  for (const Line& line : lines) {
    text.push_back(fmt::format("{}{}  {:<6}  {}{}  {}{}", line.module,
                               blanks(of_module - columns(line.module)), line.device,
                               blanks(of_bytes - columns(line.bytes)), line.bytes,
                               blanks(of_spare - columns(line.spare)), line.spare));
  }
  return text;
}

}  // namespace adtrain
