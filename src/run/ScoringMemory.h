#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "kernels/plan/KernelPlan.h"
#include "placement/DeviceMap.h"
#include "placement/PlacedModules.h"
#include "run/RunConfig.h"

namespace adtrain {

/// What a pass of so many windows takes of a GPU of a device map beside the weights. Batches wait between
/// stages, too: as their tokens.
ContextMemory context_memory(const RunConfig& config, const kernels::DeviceTraits& device,
                             at::ScalarType type, int64_t rows);

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

/// The bytes of a parameter of this shape. Matrices of blocks are quantised: 8 bits and an fp32 for each row;
/// 4 bits and an fp32 for each 64 elements, 4.5 bits together; with double quantisation a byte for each 64
/// and an fp32 for each 256 of those, 4.127 bits together. All else is in 16 bits then.
int64_t bytes_in(WeightFormat format, const std::string& name, const std::vector<int64_t>& shape);

/// What scoring takes of GPUs' memory, by arithmetic alone, the same on every machine: kernels are those of
/// an H100.
class ScoringMemory {
 public:
  /// Throws ConfigError for a plug-in's network.
  explicit ScoringMemory(const RunConfig& config);

  int64_t parameter_count() const { return parameters_; }
  int64_t weight_bytes(WeightFormat format) const;
  /// Of the fullest of so many GPUs, over which a balanced device map spreads the network: its weights, and
  /// a pass of `rows` windows. Of one GPU without a map, which in 16 bits holds the fp32 weights, too.
  /// Nothing where the network runs on one device alone.
  std::optional<int64_t> fullest_gpu_bytes(WeightFormat format, int64_t gpus, int64_t rows) const;

 private:
  std::vector<PlacedModule> modules(WeightFormat format) const;

  const RunConfig& config_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes_;  ///< of parameters, in their order
  int64_t parameters_ = 0;
  bool in_parts_ = false;
};

}  // namespace adtrain
