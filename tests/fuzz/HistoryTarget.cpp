#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/Error.h"
#include "data/HistoryFile.h"
#include "data/formats/HistorySource.h"
#include "fuzz/Targets.h"
#include "support/TemporaryFolder.h"

namespace adtrain::fuzz {

namespace {

void read_in_place(const std::filesystem::path& path) {
  try {
    const auto source = HistorySource::open(path);
    require(!source->tasks().empty(), "a data set holds a task at least");
    const TaskHistories& task = source->tasks().front();
    const int64_t count = std::min<int64_t>(task.steps.front(), 64);
    const HistoryWindow window = source->window(0, 0, task.steps.front() - count, count);
    for (const Column& column : window.columns) {
      require(column.bytes.size() == static_cast<size_t>(count) * column.type.row_bytes(),
              "a column has the rows asked for");
    }
  } catch (const DataError&) {
  }
}

}  // namespace

/// The HDF5 library runs in a process of its own, which these bytes may crash; this one must not notice it
/// but by an error.
void history(std::string_view bytes) {
  static const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "fuzzed.hdf5";
  std::ofstream(path, std::ios::binary) << bytes;
  read_in_place(path);
  try {
    const HistoryFile file(path);
    require(!file.tasks().empty() && file.steps() > 0 && file.streams() > 0, "a file holds a step at least");
    const int64_t steps = std::min<int64_t>(file.steps(), 64), streams = std::min<int64_t>(file.streams(), 8);
    const History part =
        file.read(file.tasks().smallest(), steps, streams, {.grid_size = 9, .num_actions = 5});
    require(part.actions.size() == static_cast<size_t>(steps * streams), "a part has the size asked for");
    file.read(file.tasks().largest(), file.steps(), file.streams(), {.grid_size = 9, .num_actions = 5});
  } catch (const DataError&) {
  }
}

}  // namespace adtrain::fuzz
