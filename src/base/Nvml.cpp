#include "base/Nvml.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvml.h>

#include "base/Text.h"

namespace adtrain {
namespace {

std::string gigabytes(int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9);
}

/// Older drivers and headers say "throttle" where newer ones say "event"; the bits are the same.
std::vector<std::string> words_for(unsigned long long reasons) {
  constexpr std::pair<unsigned long long, const char*> kWords[] = {
      {nvmlClocksEventReasonApplicationsClocksSetting, "the application clocks that are set"},
      {nvmlClocksEventReasonSwPowerCap, "the power limit"},
      {nvmlClocksThrottleReasonHwThermalSlowdown, "the hardware's protection from heat"},
      {nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "the power brake of the machine's power supply"},
      {nvmlClocksEventReasonSyncBoost, "another GPU of its group of equal clocks"},
      {nvmlClocksEventReasonSwThermalSlowdown, "the driver's temperature limit"},
      {nvmlClocksEventReasonDisplayClockSetting, "the display's clock setting"},
  };
  std::vector<std::string> words;
  for (const auto& [bit, word] : kWords) {
    if ((reasons & bit) != 0) words.emplace_back(word);
  }
  constexpr auto kExplained =
      nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
  if ((reasons & nvmlClocksThrottleReasonHwSlowdown) != 0 && (reasons & kExplained) == 0) {
    words.emplace_back("the hardware's protection from heat or overload");
  }
  return words;
}

}  // namespace

int64_t OtherGpuProcesses::count() const {
  const auto processes = static_cast<int64_t>(listed.size());
  return self_found ? processes : std::max<int64_t>(0, processes - 1);
}

std::string OtherGpuProcesses::text() const {
  if (count() == 0) return "";
  std::vector<std::string> each;
  for (const GpuProcess& process : listed) {
    each.push_back(fmt::format("pid {}", process.id) +
                   (process.bytes ? fmt::format(" ({})", gigabytes(*process.bytes)) : ""));
  }
  if (!self_found) {
    return fmt::format("{} processes, this one among them, by ids of another namespace than this one's: {}",
                       listed.size(), join(each, ", "));
  }
  if (listed.size() > 1) return fmt::format("{} other processes: {}", listed.size(), join(each, ", "));
  return fmt::format("{}another process: pid {}",
                     listed.front().bytes ? gigabytes(*listed.front().bytes) + " by " : "",
                     listed.front().id);
}

OtherGpuProcesses other_processes(const GpuState& state, int64_t own_id) {
  OtherGpuProcesses others;
  if (!state.processes) return others;
  for (const GpuProcess& process : *state.processes) {
    if (process.id == own_id) {
      others.self_found = true;
    } else {
      others.listed.push_back(process);
    }
  }
  return others;
}

/// Those that this project calls. Drivers lack some, and of the others some GPUs report nothing.
struct Nvml::Functions {
  void* library = nullptr;
  decltype(&nvmlInit_v2) init = nullptr;
  decltype(&nvmlShutdown) shutdown = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) device_at = nullptr;
  decltype(&nvmlDeviceGetClockInfo) clock = nullptr, max_clock = nullptr;
  decltype(&nvmlDeviceGetCurrentClocksEventReasons) clock_reasons = nullptr;
  decltype(&nvmlDeviceGetPowerUsage) power = nullptr, power_limit = nullptr;
  /// Deprecated since CUDA 13.1, whose drivers keep it; what comes in its place is too new for most drivers.
  nvmlReturn_t (*temperature)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int*) = nullptr;
  decltype(&nvmlDeviceGetMemoryInfo) memory = nullptr;
  decltype(&nvmlDeviceGetComputeRunningProcesses_v3) processes = nullptr;

  explicit Functions(void* opened) : library(opened) {
    find(init, "nvmlInit_v2");
    find(shutdown, "nvmlShutdown");
    find(device_at, "nvmlDeviceGetHandleByPciBusId_v2");
    find(clock, "nvmlDeviceGetClockInfo");
    find(max_clock, "nvmlDeviceGetMaxClockInfo");
    find(clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (clock_reasons == nullptr) find(clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    find(power, "nvmlDeviceGetPowerUsage");
    find(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    find(temperature, "nvmlDeviceGetTemperature");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  }
  ~Functions() { dlclose(library); }
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  /// What `function` reports of a GPU; nothing where it cannot.
  template <class Figure, class Function, class... Arguments>
  static std::optional<Figure> ask(Function function, Arguments... arguments) {
    Figure figure{};
    if (function == nullptr || function(arguments..., &figure) != NVML_SUCCESS) return std::nullopt;
    return figure;
  }

  std::optional<std::vector<GpuProcess>> processes_on(nvmlDevice_t device) const {
    if (processes == nullptr) return std::nullopt;
    unsigned int count = 16;
    std::vector<nvmlProcessInfo_t> found;
    nvmlReturn_t answer = NVML_ERROR_INSUFFICIENT_SIZE;
    for (int trial = 0; trial < 3 && answer == NVML_ERROR_INSUFFICIENT_SIZE; ++trial) {
      count += 8;  // for those that start meanwhile
      found.resize(count);
      answer = processes(device, &count, found.data());
    }
    if (answer != NVML_SUCCESS) return std::nullopt;
    constexpr auto kNotAvailable = static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
    std::vector<GpuProcess> listed;
    for (unsigned int i = 0; i < count; ++i) {
      GpuProcess process{.id = static_cast<int64_t>(found[i].pid), .bytes = std::nullopt};
      if (found[i].usedGpuMemory != kNotAvailable) {
        process.bytes = static_cast<int64_t>(found[i].usedGpuMemory);
      }
      listed.push_back(process);
    }
    return listed;
  }
};

Nvml::Nvml(const std::string& library) {
  void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return;
  auto functions = std::make_unique<Functions>(opened);
  const bool complete = functions->init != nullptr && functions->shutdown != nullptr;
  if (complete && functions->device_at != nullptr && functions->init() == NVML_SUCCESS) {
    functions_ = std::move(functions);
  }
}

Nvml::~Nvml() {
  if (functions_ != nullptr) functions_->shutdown();
}

std::optional<GpuState> Nvml::visible_gpu(int index) const {
  if (!known()) return std::nullopt;
  char bus_id[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE] = "";
  if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, index) != cudaSuccess) {
    cudaGetLastError();  // clears the error, so that no other call reports it
    return std::nullopt;
  }
  return gpu_at(bus_id);
}

std::optional<GpuState> Nvml::gpu_at(const std::string& bus_id) const {
  if (!known()) return std::nullopt;
  const Functions& nvml = *functions_;
  nvmlDevice_t device = nullptr;
  if (nvml.device_at(bus_id.c_str(), &device) != NVML_SUCCESS) return std::nullopt;
  const auto watts = [](std::optional<unsigned int> milliwatts) -> std::optional<double> {
    return milliwatts ? std::optional(1e-3 * *milliwatts) : std::nullopt;
  };
  GpuState state;
  state.bus_id = bus_id;
  state.sm_clock = Functions::ask<unsigned int>(nvml.clock, device, NVML_CLOCK_SM);
  state.max_sm_clock = Functions::ask<unsigned int>(nvml.max_clock, device, NVML_CLOCK_SM);
  state.clock_limits = words_for(Functions::ask<unsigned long long>(nvml.clock_reasons, device).value_or(0));
  state.power = watts(Functions::ask<unsigned int>(nvml.power, device));
  state.power_limit = watts(Functions::ask<unsigned int>(nvml.power_limit, device));
  state.temperature = Functions::ask<unsigned int>(nvml.temperature, device, NVML_TEMPERATURE_GPU);
  if (const auto memory = Functions::ask<nvmlMemory_t>(nvml.memory, device)) {
    state.memory_in_use = static_cast<int64_t>(memory->used);
    state.memory_total = static_cast<int64_t>(memory->total);
  }
  state.processes = nvml.processes_on(device);
  return state;
}

}  // namespace adtrain
