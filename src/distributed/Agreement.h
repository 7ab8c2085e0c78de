#pragma once

#include <string>
#include <vector>

#include "distributed/Communicator.h"

namespace adtrain {

/// Every rank's text, in the order of ranks. Collective.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& text);

/// Rank 0's text, on every rank. Collective.
std::string text_of_root(Communicator& communicator, const std::string& text);

/// Makes sure that all ranks hold the same value. Collective. Throws EnvironmentError, on every rank, which
/// says what `name` is on which ranks where they differ.
void check_same(Communicator& communicator, const std::string& name, const std::string& value);

}  // namespace adtrain
