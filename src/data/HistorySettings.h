#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace adtrain {

/// All settings that determine the content of a history file, name and value as text. A file holds the
/// settings that it was collected with as attributes; files of other programs, and those of earlier versions,
/// hold none.
using HistorySettings = std::map<std::string, std::string>;

/// The attribute, beside the settings, that holds the checksum of all tasks' values.
inline constexpr const char* kContentChecksum = "content_crc32";

/// The attribute, beside the settings, that holds the tasks' numbers where they are not 0 … n−1.
inline constexpr const char* kTaskNumbers = "task_numbers";

/// Whether an attribute of that name is one of the settings that determine the transitions.
bool determines_the_values(const std::string& name);

/// "n_steps was 20 and is 80" for each setting that differs.
std::vector<std::string> differences(const HistorySettings& before, const HistorySettings& now);

/// Checks that a file was collected with the settings that a configuration requires. It does not check a file
/// without settings, or where nothing is expected, or settings that do not change the transitions: the
/// compression, the device that collected, the tasks, and data sets that training does not read. Other
/// attributes, which are no settings, are passed over. Throws DataError that names each setting with both
/// values.
void check_collected_with(const std::filesystem::path& file, const HistorySettings& found,
                          const HistorySettings& expected);

}  // namespace adtrain
