#pragma once

#include <string>

namespace adtrain {

/// The version of the NCCL library that is loaded, as "2.28.9". Needs no GPU.
std::string nccl_version();

}  // namespace adtrain
