#include "memory/MemoryMeter.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <malloc.h>

#include "base/Gpu.h"

namespace adtrain {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// A figure of a file of /proc in kB, such as "VmRSS:  1234 kB", as bytes; 0 where the file lacks it.
int64_t proc_bytes(const char* file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream figure(line.substr(name.size()));
    int64_t kib = 0;
    figure >> kib;
    return kib * 1024;
  }
  return 0;
}

constexpr const char* kStatus = "/proc/self/status";

int64_t resident() {
  return proc_bytes(kStatus, "VmRSS:");
}

MemoryReading of_driver(c10::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  size_t free_bytes = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total));
  return {static_cast<int64_t>(total - free_bytes), static_cast<int64_t>(total)};
}

const c10::CachingDeviceAllocator::Stat& reserved(const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return stats.reserved_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

int64_t bytes_outside_allocator(c10::Device device) {
  if (!device.is_cuda()) return 0;
  at::globalContext().lazyInitDevice(c10::kCUDA);
  return of_driver(device).in_use - reserved(allocator::getDeviceStats(device.index())).current;
}

MemoryMeter::MemoryMeter(c10::Device device, std::optional<int64_t> cpu_limit, int64_t local_ranks)
    : device_(device) {
  if (device_.is_cuda()) {
    at::globalContext().lazyInitDevice(c10::kCUDA);  // the allocator knows no device before
    name_ = visible_gpu(device_.index()).name;
    return;
  }
  name_ = "CPU";
  cpu_total_ = cpu_limit.value_or(resident() + proc_bytes("/proc/meminfo", "MemAvailable:") /
                                                   std::max<int64_t>(1, local_ranks));
}

MemoryReading MemoryMeter::now() const {
  return device_.is_cuda() ? of_driver(device_) : MemoryReading{resident(), cpu_total_};
}

void MemoryMeter::restart() {
  sampled_ = 0;
  if (device_.is_cuda()) {
    c10::cuda::device_synchronize();
    allocator::emptyCache();
    allocator::resetPeakStats(device_.index());
  } else {
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;  // see proc(5): resets VmHWM
  }
  at_restart_ = now().in_use;
}

void MemoryMeter::sample() {
  sampled_ = std::max(sampled_, peak());
}

int64_t MemoryMeter::peak() const {
  if (device_.is_cpu()) return proc_bytes(kStatus, "VmHWM:");
  const auto stats = allocator::getDeviceStats(device_.index());
  return std::max(sampled_, now().in_use - reserved(stats).current + reserved(stats).peak);
}

MemorySplit MemoryMeter::split(MemorySplit known) const {
  const int64_t in_use = now().in_use;
  known.activations = known.other = 0;
  if (device_.is_cuda()) {
    const int64_t in_allocator = known.parameters + known.gradients + known.moments + known.histories;
    known.activations = reserved(allocator::getDeviceStats(device_.index())).current - in_allocator;
  } else {
    known.activations = std::max<int64_t>(0, in_use - at_restart_);
  }
  known.other = in_use - known.total();
  return known;
}

}  // namespace adtrain
