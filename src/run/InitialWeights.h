#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/WeightTransfer.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The weights that `init_from` names, on the CPU, and which of them a configuration's network begins with.
class InitialWeights {
 public:
  /// Reads what the configuration's `init_from` names: a run (its newest checkpoint that verifies), a
  /// checkpoint's folder, or a safetensors file; and compares it with `wanted`, whose values are not read.
  /// Throws CheckpointError where there is none or it is damaged, and ConfigError with file, line and key
  /// where it is of another network, which says what was found, what was expected, and what to set.
  InitialWeights(const RunConfig& config, const ParameterBuffer& wanted);

  /// The one line that says whence, and how much of it is taken; then what is new and what is left out; then
  /// what the reader should know beside.
  std::vector<std::string> report() const;
  /// For run.json: {"path", "checkpoint", "step", "crc32", "taken", "new", "left_out"}. The step is null
  /// where a file does not say it.
  nlohmann::ordered_json record() const;
  void put_into(ParameterBuffer& parameters) const { transfer_.carry_out(tensors_, parameters); }

 private:
  void read_run_or_checkpoint();
  void read_file_alone();
  /// The settings of the blocks that differ from the source's, "" where none does or its are not known. Adds
  /// to the notices what differs and may.
  std::string other_settings();
  void refuse_other_network(const std::string& settings) const;

  const RunConfig& config_;
  std::string named_;  ///< as in the configuration
  std::filesystem::path path_;
  std::optional<int64_t> step_;
  std::string crc32_;          ///< of the file with the tensors
  std::string configuration_;  ///< of the source, YAML; "" where it is not known
  std::vector<NamedTensor> tensors_;
  std::vector<std::string> notices_;
  WeightTransfer transfer_;
};

}  // namespace adtrain
