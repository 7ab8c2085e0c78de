#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/Document.h"
#include "run/RunConfig.h"

namespace adtrain {

/// Brings the document's `histories` into one form: a list of paths becomes a text with commas between them.
/// What is no path becomes an error of the document.
void unfold_histories(Document& document);

/// The files and folders in which the histories of own tasks lie, in the order in which `histories` names
/// them, those of a pattern in the order of their names; without `histories` the file that `adtrain collect`
/// writes. Throws DataError, with file, line and key, where a path does not exist, where a pattern fits none,
/// and where one is named twice: it says the nearest name.
std::vector<std::filesystem::path> history_paths(const RunConfig& config);

/// For messages: the path, of several how many and where they are named.
std::string name_of_histories(const RunConfig& config, const std::vector<std::filesystem::path>& paths);

}  // namespace adtrain
