#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace adtrain::kernels {

/// Why the kernels of whole blocks do not run on this device, for people; empty where they do.
std::optional<std::string> why_no_fused_kernels(const at::Device& device);

/// Whether the kernels of the network's ends run on it: they need little memory.
bool runs_fused_ends(const at::Device& device);

/// Whether those for what goes on between a wide block's products do: see rows/GpuRows.h.
bool runs_row_kernels(const at::Device& device);

}  // namespace adtrain::kernels
