#pragma once

#include <exception>
#include <functional>

#include "memory/RankMemory.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Where `error` means that this rank's device has no memory left for training, throws an Error
/// (kOutOfMemory) that says more: what was asked for, what the memory held then, by parts, what other
/// processes take, and what to change, with the batch that fits by MemoryEstimate. Else, where that cannot be
/// found out, or where `error` is an Error, which says what to change itself, returns.
void explain_out_of_memory(const std::exception& error, const RunConfig& config, const Ranks& ranks,
                           const std::function<RankMemory()>& memory);

}  // namespace adtrain
