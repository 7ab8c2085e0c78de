#pragma once

#include <string>
#include <vector>

#include "config/Document.h"
#include "launch/LaunchContext.h"

namespace adtrain {

/// Puts what `accelerate launch` was told into the document, by its flags or its default_config.yaml, both of
/// which reach a program as ACCELERATE_… variables: mixed precision, gradient accumulation and clipping,
/// ranks on the CPU. Values of the document win; accelerate's defaults ("no", 1) say nothing. Returns a
/// remark for each setting that is taken, that the document contradicts, or that has no counterpart here.
std::vector<std::string> take_accelerate_settings(Document& document, const EnvironmentLookup& lookup);

}  // namespace adtrain
