#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "framework/Ranks.h"
#include "kernels/primitives/DeviceTraits.h"
#include "model/AlgorithmDistillation.h"
#include "run/RunConfig.h"
#include "run/TrainedRun.h"
#include "telemetry/Console.h"

namespace adtrain {

/// The network of `adtrain score` or `adtrain evaluate` with a run's weights, quantised where the
/// configuration says so.
struct LoadedNetwork {
  std::unique_ptr<AlgorithmDistillation> model;
  int64_t step = 0;                   ///< of the checkpoint
  std::string weights;                ///< what its weights take, for people; empty where they are as they are
  std::vector<std::string> warnings;  ///< where quantised weights cost more than they save

  /// Reads the weights, as `type` and on the rank's device; that of all ranks is rank 0's. Weights that are
  /// to be quantised come by way of the host's memory alone, in fp32. Collective. Throws ConfigError where a
  /// network has no such layers.
  static LoadedNetwork of(const RunConfig& config, const TrainedRun& trained, const Ranks& ranks,
                          at::ScalarType type, Console& console);
};

/// The type in which a network computes on this device where it is evaluated or scored: torch_dtype; where
/// that is open and weights are quantised, bnb_4bit_compute_dtype, or on GPUs the 16-bit type of the run's
/// training, or bf16; else fp32.
at::ScalarType loaded_type(const RunConfig& config, at::Device device);

/// The weights that the configuration quantises: see quantised_names of QuantisedNetwork.h.
std::set<std::string> quantised_names(const RunConfig& config, const ParameterBuffer& parameters);

/// The modules, or weights, of linear layers that a checkpoint with quantised weights holds as they are, but
/// for heads: what llm_int8_skip_modules says of it. Each by the shortest name in which nothing is quantised.
std::vector<std::string> modules_left(const ParameterBuffer& parameters, const QuantisedMatrices& stored);
/// Whether llm_int8_skip_modules is set, and names other layers than those. Throws ConfigError where one of
/// its patterns fits no parameter.
bool skips_others(const RunConfig& config, const ParameterBuffer& parameters,
                  const QuantisedMatrices& stored);

/// Whether steps of an evaluation of this type may be captured in CUDA graphs. Without kernels of ours the
/// host must know in each step where LLM.int8's outliers lie.
bool can_be_captured(const RunConfig& config, const kernels::DeviceTraits& device, at::ScalarType type);

/// Of a configuration that asks for quantised weights, by arithmetic: what they take, and that they are not
/// for training.
std::string quantised_notice(const RunConfig& config);

/// Throws ConfigError where the configuration asks for quantised weights, which do not train.
void refuse_to_train_quantised(const RunConfig& config);

}  // namespace adtrain
