#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace adtrain {

/// Bytes of one device's memory in use, by what they hold. On a CPU rank: of what its process has resident.
struct MemorySplit {
  int64_t parameters = 0;     ///< fp32, and their 16-bit copy
  int64_t gradients = 0;      ///< fp32, and what is sent of them in 16 bits
  int64_t moments = 0;        ///< of the optimizer
  int64_t activations = 0;    ///< all else that libtorch's allocator holds: also temporaries and workspaces
  int64_t histories = 0;      ///< that batches are cut from
  int64_t graph = 0;          ///< a captured step's launches, without its activations
  int64_t communication = 0;  ///< buffers of NCCL
  int64_t other = 0;          ///< CUDA's context, the kernels' code, other processes

  int64_t total() const;
};

struct MemoryPart {
  const char* name;
  int64_t MemorySplit::*bytes;
};
/// All parts, in the order in which they are shown.
inline constexpr std::array<MemoryPart, 8> kMemoryParts = {{
    {"parameters", &MemorySplit::parameters},
    {"gradients", &MemorySplit::gradients},
    {"moments", &MemorySplit::moments},
    {"activations", &MemorySplit::activations},
    {"histories", &MemorySplit::histories},
    {"graph", &MemorySplit::graph},
    {"communication", &MemorySplit::communication},
    {"other", &MemorySplit::other},
}};

/// "1.24 GB", decimal.
std::string gigabytes(int64_t bytes);

/// "activations 93.10 GB, parameters 0.46 GB, …": the largest first, without those below a hundredth of the
/// total.
std::string text_of(const MemorySplit& split);
/// Bytes by name.
nlohmann::ordered_json to_json(const MemorySplit& split);

}  // namespace adtrain
