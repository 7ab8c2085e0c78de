/// A library in the place of NVML: of one GPU, whose clocks are held down and on which a hundred processes
/// compute.
#include <cstring>

#include <nvml.h>

namespace {

constexpr const char* kBusId = "00000000:1B:00.0";
int device = 0;

nvmlReturn_t answer(unsigned int* figure, unsigned int value) {
  *figure = value;
  return NVML_SUCCESS;
}

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() {
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown() {
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_t* found) {
  if (std::strcmp(bus_id, kBusId) != 0) return NVML_ERROR_NOT_FOUND;
  *found = reinterpret_cast<nvmlDevice_t>(&device);
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned int* clock) {
  return answer(clock, type == NVML_CLOCK_SM ? 1215 : 1);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned int* clock) {
  return answer(clock, type == NVML_CLOCK_SM ? 1980 : 1);
}

/// By the name that it had before CUDA 12.2.
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t, unsigned long long* reasons) {
  *reasons = nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonSwPowerCap |
             nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned int* milliwatts) {
  return answer(milliwatts, 498'500);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t, unsigned int* milliwatts) {
  return answer(milliwatts, 500'000);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int*) {
  return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  *memory = {.total = 100'000, .free = 30'000, .used = 70'000};
  return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int* count,
                                                     nvmlProcessInfo_t* processes) {
  constexpr unsigned int kProcesses = 100;  // more than a caller expects
  const bool enough = *count >= kProcesses;
  *count = kProcesses;
  if (!enough) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int i = 0; i < kProcesses; ++i) {
    processes[i] = {.pid = 1000 + i, .usedGpuMemory = 1'000 * i, .gpuInstanceId = 0, .computeInstanceId = 0};
  }
  processes[1].usedGpuMemory = static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE);
  return NVML_SUCCESS;
}

}  // extern "C"
