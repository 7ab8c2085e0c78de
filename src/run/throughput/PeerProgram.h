#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "run/RunConfig.h"
#include "run/throughput/ThroughputRows.h"

namespace adtrain {

/// What measures rows that are not adtrain's: PyTorch with a network of the size of a run's, by a Python that
/// has it.
class PeerProgram {
 public:
  /// `python`: a program, looked for as a shell does.
  PeerProgram(std::string python, const RunConfig& config);

  const std::string& python() const { return python_; }
  /// The command line of a row, whose speed is written to a file as ScoringSpeed does. Throws
  /// EnvironmentError where the script is not with this program.
  std::vector<std::string> command(const ThroughputRow& row, double seconds,
                                   const std::filesystem::path& speed) const;

 private:
  std::string python_, network_;
};

}  // namespace adtrain
