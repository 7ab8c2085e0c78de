#pragma once

#include <exception>

#include "base/Error.h"
#include "memory/RankMemory.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {

/// The error of a training run whose rank was refused memory: what was asked for, what the memory held then,
/// by parts, what other processes take, and the next batch that fits, by MemoryEstimate.
Error out_of_memory_in_training(const std::exception& error, const RunConfig& config, const Ranks& ranks,
                                const RankMemory& memory);

}  // namespace adtrain
