#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace adtrain::kernels {

/// Why the fused kernels do not run on this device, for people; empty where they do.
std::optional<std::string> why_no_fused_kernels(const at::Device& device);

}  // namespace adtrain::kernels
