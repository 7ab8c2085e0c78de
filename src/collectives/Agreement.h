#pragma once

#include <string>
#include <vector>

#include "collectives/Communicator.h"

namespace adtrain {

/// Returns every rank's text, by rank. Collective.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

/// Returns rank 0's text on every rank. Collective.
std::string text_of_root(Communicator& communicator, const std::string& text);

/// Checks that all ranks hold the same value. Collective. Where they differ, throws EnvironmentError on every
/// rank, which says what `name` is on which ranks: of values of several lines, in which lines they differ.
void check_same(Communicator& communicator, const std::string& name, const std::string& value);

}  // namespace adtrain
