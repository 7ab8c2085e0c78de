#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "base/NumberRanges.h"
#include "data/HistorySettings.h"

namespace adtrain {

/// Copies the files of single tasks, `parts`/0.hdf5 for task 0, into one history file with `settings` as its
/// attributes. `before` is called with each task before it is read. Throws DataError.
void assemble_history_file(const std::filesystem::path& parts, const NumberRanges& tasks,
                           const std::filesystem::path& assembled, HistorySettings settings,
                           const std::function<void(int64_t task)>& before);

/// Copies the file of a single task as assemble_history_file will, and discards the copy: a file that would
/// crash the library later crashes it now. Throws DataError.
void rehearse_assembly(const std::filesystem::path& part, int64_t task);

/// Reads the columns of the file of a single task of version 2, all of which have checksums. Throws DataError
/// where one is not as it was written, or where one that every task has is missing.
void verify_task_columns(const std::filesystem::path& part, int64_t task);

}  // namespace adtrain
