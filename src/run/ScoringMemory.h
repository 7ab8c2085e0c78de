#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <c10/core/ScalarType.h>

#include "kernels/plan/KernelPlan.h"
#include "model/AlgorithmDistillation.h"
#include "placement/DeviceMap.h"
#include "placement/PlacedModules.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What a pass of so many windows takes of a GPU of a device map beside the weights. Batches wait between
/// stages, too: as their tokens. `quantised`: whether weights are.
ContextMemory context_memory(const RunConfig& config, const kernels::DeviceTraits& device,
                             at::ScalarType type, bool quantised, int64_t rows);
/// The same where so many rows grow by one step at a time, beside the keys and values that blocks keep: of a
/// step alone where rows slide, else of windows, too, which are shown once they are full.
ContextMemory growing_context_memory(const RunConfig& config, AlgorithmDistillation& model,
                                     const kernels::DeviceTraits& device, int64_t rows);
/// The bytes of the keys and values that each block keeps of so many rows. The model has
/// rolling().
int64_t kept_bytes_of_block(AlgorithmDistillation& model, int64_t rows);

/// How weights are kept for scoring.
enum class WeightFormat { kFloat32, kSixteenBits, kInt8, kFourBits, kFourBitsDouble };
struct NamedWeightFormat {
  WeightFormat format;
  const char* name;
};
inline constexpr std::array<NamedWeightFormat, 5> kWeightFormats = {
    {{WeightFormat::kFloat32, "fp32"},
     {WeightFormat::kSixteenBits, "bf16, fp16"},
     {WeightFormat::kInt8, "8 bit"},
     {WeightFormat::kFourBits, "4 bit"},
     {WeightFormat::kFourBitsDouble, "4 bit, double"}}};

/// What scoring takes of GPUs' memory, by arithmetic alone, the same on every machine: kernels are those of
/// an H100. Quantised are all linear layers but heads, as load_in_8bit and load_in_4bit do by themselves; all
/// else is in 16 bits then.
class ScoringMemory {
 public:
  /// Throws ConfigError for a plug-in's network.
  explicit ScoringMemory(const RunConfig& config);

  int64_t parameter_count() const;
  int64_t weight_bytes(WeightFormat format) const;
  /// Of the fullest of so many GPUs, over which a balanced device map spreads the network: its weights, and
  /// a pass of `rows` windows. Of one GPU without a map.
  int64_t fullest_gpu_bytes(WeightFormat format, int64_t gpus, int64_t rows) const;

 private:
  std::vector<PlacedModule> modules(WeightFormat format) const;

  const RunConfig& config_;
  std::unique_ptr<AlgorithmDistillation> model_;  ///< without values
};

}  // namespace adtrain
