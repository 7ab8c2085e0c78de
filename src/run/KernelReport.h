#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "kernels/plan/KernelPlan.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Which kernels a run of a configuration takes on one kind of device, and why not faster ones.
struct KernelReport {
  std::string device;     ///< its name, and whether it is present
  std::string precision;  ///< the type in which the forward pass computes: "bf16"
  std::vector<kernels::KernelPlan::Part> parts;
};

/// Reports for the device that the run would take here. Where there is no GPU and the configuration does not
/// demand a CPU, it also reports for an H100 or H200, as a user of a login node wants to know about a GPU
/// node. Throws as freeze() does.
std::vector<KernelReport> kernel_reports(const RunConfig& config);

/// [{"device", "precision", "parts": [{"part", "kernels", "why_not_faster"}]}]
nlohmann::json as_json(const std::vector<KernelReport>& reports);

/// A table for each device; every line begins with `begin`.
std::string as_text(const std::vector<KernelReport>& reports, const std::string& begin);

}  // namespace adtrain
