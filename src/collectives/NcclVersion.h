#pragma once

#include <string>

namespace adtrain {

/// The version of the NCCL library, which is loaded for that if need be, as "2.28.9". Needs no GPU.
std::string nccl_version();

}  // namespace adtrain
