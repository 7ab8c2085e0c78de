#pragma once

#include <cxxopts.hpp>

#include "run/figures/SeedStatistics.h"

namespace adtrain {

/// The option --interval, of commands that show means over runs.
void declare_interval(cxxopts::OptionAdder& options);
/// Throws ConfigError where its value is none of the three.
Interval interval_of(const cxxopts::ParseResult& arguments);

}  // namespace adtrain
