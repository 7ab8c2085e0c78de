#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/Ranks.h"
#include "model/AlgorithmDistillation.h"
#include "placement/PlacedNetwork.h"
#include "run/RunConfig.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The network of `adtrain score` or `adtrain evaluate` over the devices of device_map: of each rank over its
/// share of the GPUs that it sees, or over logical devices on the CPU. Borrows the configuration.
class SpreadNetwork {
 public:
  /// Whether the command spreads its network, which is decided before the ranks have devices: they take none
  /// then (device: cpu), but those of the map. A mode has no effect where one device holds the whole network,
  /// and max_memory does not say otherwise. Why not, where device_map asks for it, in `notices`.
  /// Throws ConfigError where a device_map other than auto is for a network that runs as a whole.
  static bool is_wanted(const RunConfig& config, std::vector<std::string>& notices);
  /// Whether its devices are GPUs.
  static bool takes_gpus(const RunConfig& config);

  /// What is sent through it: whole windows, or the newest steps of rows that grow, of which it then keeps
  /// keys and values (see PlacedNetwork::rolling).
  enum class Rows { kWindows, kGrowing };
  /// Finds the devices, whose limits are then the same on all ranks: of what is free the least. Collective.
  /// Borrows the model, which has its values on the CPU. Throws EnvironmentError where there are no such
  /// GPUs.
  SpreadNetwork(const RunConfig& config, const Ranks& ranks, AlgorithmDistillation& model,
                Rows sent = Rows::kWindows);

  bool on_gpus() const { return !gpus_.empty(); }
  /// `most`, halved until a pass of so many rows leaves a GPU room for a part of the network. Where none
  /// does, halved until the CPU has room for it, or 1.
  int64_t fitting_rows(int64_t most) const;
  /// Puts the network where the map says, for passes of up to `rows` rows; so many may grow at once. Throws
  /// ConfigError where it does not fit. To be called once.
  void place(int64_t rows);

  /// Once it is placed.
  PlacedNetwork& network() { return *placed_; }
  /// So many parts of a batch keep all devices at work; 1 on the CPU, where a batch stays whole, for its
  /// bits.
  int64_t micro_batches() const { return on_gpus() ? placed_->stages() : 1; }
  /// This rank's GPUs that hold a part of the network. Once it is placed.
  const std::vector<at::Device>& gpus_in_use() const { return gpus_in_use_; }
  /// The GPUs' name; "CPU" where none holds a part of the network. Once it is placed.
  std::string device_name() const;
  /// The map as a table, and a remark where one device suffices, which would be faster, or where all are left
  /// unused. Once it is placed.
  void show(Console& console) const;

 private:
  ContextMemory context_for(int64_t rows) const;
  /// Of each block, for so many rows; 0 where windows are sent.
  int64_t kept_for(int64_t rows) const;
  DeviceMap map_for(int64_t rows) const;
  void describe(const DeviceMap& map, int64_t rows);

  const RunConfig& config_;
  AlgorithmDistillation& model_;
  Rows sent_;
  std::vector<int> gpus_;  ///< this rank's, as their numbers on it
  std::vector<at::Device> gpus_in_use_;
  MemoryLimits limits_;
  std::vector<PlacedModule> modules_;
  std::vector<std::string> lines_;
  std::string remark_;
  std::unique_ptr<PlacedNetwork> placed_;
};

/// The map of device_map and max_memory by arithmetic alone, for a pass of score_batch rows in
/// torch_dtype, as a table with a heading. Empty where one of both is not set. Throws ConfigError where the
/// network does not fit.
std::vector<std::string> planned_map(const RunConfig& config);

}  // namespace adtrain
