#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include "data/Batch.h"
#include "model/AlgorithmDistillation.h"
#include "placement/DeviceMap.h"
#include "placement/PlacedModules.h"

namespace adtrain {

/// A network's modules, from its parameters with values of `type`.
std::vector<PlacedModule> modules_of(AlgorithmDistillation& model, at::ScalarType type);
/// The same where each parameter, in their order, takes so many bytes: see QuantisedSize.
std::vector<PlacedModule> modules_of(AlgorithmDistillation& model, const std::vector<int64_t>& bytes);

/// Predictions that the last stage has computed, or, where `ready` is there, enqueued.
struct EnqueuedPredictions {
  AlgorithmDistillation::Predictions predictions;
  std::shared_ptr<c10::Event> ready;  ///< of a GPU's copies; null on the CPU
};

/// Predictions on their way through a PlacedNetwork.
class PendingPredictions {
 public:
  /// Waits for them: fp32 on the CPU, as of AlgorithmDistillation::predict. Rethrows what went wrong. To be
  /// called once.
  AlgorithmDistillation::Predictions get();

 private:
  friend class PlacedNetwork;
  std::future<EnqueuedPredictions> enqueued_;
};

/// A network over the devices of a DeviceMap. Neighbouring modules on one device are a stage, which a thread
/// of its own runs: while a batch is in one stage, the batch after it is in the stage before, so that devices
/// work at once. Activations move between stages. What the map leaves to the CPU comes to a GPU of the map
/// for each use (StreamedModules). A batch is computed as a whole: so its predictions are those of predict(),
/// bit for bit on a CPU, whatever the map; those of rows that grow are those of
/// AlgorithmDistillation::rolling.
///
/// Devices without GPUs are logical ones, all on the CPU, each of which computes with one thread.
class PlacedNetwork {
 public:
  /// Spreads the model's parameters, which must have their values on the CPU, as `type`. `gpus`: the devices
  /// of the map's GPUs, by number. Borrows the model. Throws ConfigError where it does not run in parts.
  PlacedNetwork(AlgorithmDistillation& model, const std::vector<PlacedModule>& modules, const DeviceMap& map,
                const std::vector<at::Device>& gpus, at::ScalarType type);
  /// Finishes what was submitted.
  ~PlacedNetwork();
  PlacedNetwork(const PlacedNetwork&) = delete;
  PlacedNetwork& operator=(const PlacedNetwork&) = delete;

  /// Throws ConfigError where a model does not run in parts.
  static void check(AlgorithmDistillation& model);

  /// Sends rows on the CPU, as predict() takes them, through the stages, behind those submitted before.
  /// Returns at once. Who keeps about stages() + 1 batches on the way keeps all devices at work. Thread-safe.
  PendingPredictions submit(const Batch& batch);
  /// Sends a step of rows that grow, on the CPU, as AlgorithmDistillation::Rolling takes it, in the same way.
  /// Each stage keeps the keys and values of its blocks on its own device, which for weights that stream is
  /// the GPU that they come to. A step that throws leaves its rows undefined.
  using Rolling = std::function<PendingPredictions(const Batch& step)>;
  /// Of empty rows. Null where the network cannot. Borrows this.
  Rolling rolling();
  int64_t stages() const;

 private:
  struct Stages;
  std::unique_ptr<Stages> stages_;
};

}  // namespace adtrain
