#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/profile/StepParts.h"

namespace adtrain {

/// One name of the table: a kernel, copy or collective operation of a GPU, or an operator of the CPU.
struct OperatorRow {
  std::string name;
  int64_t calls = 0;
  int64_t total_ns = 0;  ///< on the GPU; on the CPU without the operators inside it
};

/// What ran in the windows of steps, longest total first: on the GPU where anything was recorded there, else
/// on the CPU.
std::vector<OperatorRow> operator_table(const ProfileEvents& recorded,
                                        const std::vector<StepWindow>& windows);

}  // namespace adtrain
