#pragma once

#include <string>

#include "config/Document.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Puts observation_space and action_space into the document as JSON on one line, whether they are nested
/// maps or JSON, and observation_packing as numbers with commas between. What is no space is recorded as an
/// error.
void unfold_spaces(Document& document);

/// What concerns several components' keys with own tasks, or without them.
void check_own_tasks(const RunConfig& config, Findings& findings);

/// A remark where the label of own tasks is nearly a family's name; "" where it is not.
std::string remark_on_label(const RunConfig& config);

}  // namespace adtrain
