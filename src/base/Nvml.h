#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A process that computes on a GPU.
struct GpuProcess {
  int64_t id = 0;
  std::optional<int64_t> bytes;  ///< of the GPU's memory, where the driver says

  bool operator==(const GpuProcess&) const = default;
};

/// What the driver knows of one GPU at this moment. A figure that this GPU or driver does not report is
/// absent.
struct GpuState {
  std::string bus_id;  ///< on the PCI bus: "00000000:1B:00.0", as nvidia-smi takes it by -i
  std::optional<int64_t> sm_clock, max_sm_clock;  ///< MHz
  std::vector<std::string> clock_limits;          ///< what holds the clocks down, in words; idle is none
  std::optional<double> power, power_limit;       ///< watts
  std::optional<int64_t> temperature;             ///< of the chip, degrees Celsius
  std::optional<int64_t> memory_in_use;           ///< bytes, by all processes and the driver
  std::optional<int64_t> memory_total;            ///< bytes
  /// Those of all users and containers; absent where the driver does not tell. In a container with process
  /// ids of its own the ids may be the host's.
  std::optional<std::vector<GpuProcess>> processes;

  bool operator==(const GpuState&) const = default;
};

/// Processes on a GPU beside the one that asks.
struct OtherGpuProcesses {
  /// Without the one that asks where it is listed; else all.
  std::vector<GpuProcess> listed;
  /// Whether the one that asks was found among them. Where it was not, though it computes on the GPU, ids are
  /// those of another namespace, and one of the listed is itself.
  bool self_found = false;

  int64_t count() const;
  /// "61.2 GB by another process: pid 1234", "2 other processes: pid 12 (60.0 GB), pid 13 (1.2 GB)"; empty
  /// where there is none.
  std::string text() const;
};
/// `own_id`: of a process that computes on that GPU.
OtherGpuProcesses other_processes(const GpuState& state, int64_t own_id);

/// NVIDIA's management library (NVML), which the driver brings along. It is opened when this object is made;
/// where there is none, nothing is known and nothing is an error. Reading takes up to milliseconds.
/// Thread-safe.
class Nvml {
 public:
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Whether the library is there, and serves.
  bool known() const { return functions_ != nullptr; }
  /// Of the GPU that CUDA shows this process under `index` (CUDA_VISIBLE_DEVICES may have reordered them).
  std::optional<GpuState> visible_gpu(int index) const;
  /// Of the GPU with this id on the PCI bus.
  std::optional<GpuState> gpu_at(const std::string& bus_id) const;

 private:
  struct Functions;  ///< keeps nvml.h out of every other file
  std::unique_ptr<Functions> functions_;
};

}  // namespace adtrain
