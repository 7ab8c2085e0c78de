#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/Column.h"
#include "environments/Space.h"

namespace adtrain {

/// A format of learning histories; docs/history-formats.md describes them.
enum class HistoryFormat : uint8_t { kAdtrain, kXland, kVintix };

/// "adtrain", "xland", "vintix".
const char* name_of(HistoryFormat format);
const std::vector<HistoryFormat>& history_formats();

/// Tasks of equal spaces and columns, as one encoder takes them.
struct SpaceGroup {
  std::string name;                  ///< of a domain; "" where all tasks are of one
  std::optional<Space> observation;  ///< of a row as it is stored; nothing where the data do not say
  std::optional<Space> action;
  /// Where each stored number of an observation holds several digits: how many values each may take, the most
  /// significant first. Empty: it is one number.
  std::vector<int64_t> packed_digits;
  std::vector<ColumnType> columns;  ///< in the order of ColumnKind

  /// Null where the tasks have no such column.
  const ColumnType* find(ColumnKind kind) const;
};

/// One task and the lengths of its histories.
struct TaskHistories {
  std::string name;                               ///< as a user would name it in a message
  int64_t number = 0;                             ///< the task's own, where it has one; else its place
  size_t group = 0;                               ///< of spaces
  std::map<std::string, std::string> attributes;  ///< what else the data say of it, as text
  std::vector<int64_t> steps;                     ///< of each history
  /// Whether the data say that it is trained on, or held out; nothing where they do not say.
  std::optional<bool> trained = std::nullopt;
};

struct HistoryFiles;

/// How a source reads.
struct HistorySourceOptions {
  /// Expected; data that bear no format's mark are read as it. Nothing: recognised by what is found.
  std::optional<HistoryFormat> format;
  size_t cache_bytes = size_t{256} << 20;  ///< of inflated chunks
  /// To which the paths of a list's tasks are relative (ListedTasks); "" is the current folder.
  std::filesystem::path list_folder = {};
  /// What several sources have in common: their cache and the process that is asked; null: its own.
  std::shared_ptr<HistoryFiles> files = nullptr;
};

/// A data set of learning histories, whatever its format, read in place: a window is a task, a history and a
/// first step, and only the chunks that it touches are read. Opening reads names and shapes alone. Memory is
/// bounded, whatever the size of the data. Any number of threads may read. Windows can therefore be drawn in
/// any order, for example by SampleOrder.
class HistorySource {
 public:
  /// A file or a folder, or a list of tasks (ListedTasks). Throws DataError where it is missing, damaged, or
  /// of no known format, or bears the mark of another than `options` expect: then it says what was found.
  static std::unique_ptr<HistorySource> open(const std::filesystem::path& path,
                                             const HistorySourceOptions& options = {});
  /// The tasks of all paths, one at least, in this order (JoinedHistories). Throws besides where two paths
  /// have a task of one name.
  static std::unique_ptr<HistorySource> open_all(const std::vector<std::filesystem::path>& paths,
                                                 const HistorySourceOptions& options = {});
  virtual ~HistorySource() = default;

  virtual HistoryFormat format() const = 0;
  /// Its name, for people; of several formats all names.
  virtual std::string format_names() const { return name_of(format()); }
  /// How it lies there, for people: "version 1, one group a task, time first".
  virtual std::string description() const = 0;
  virtual const std::vector<SpaceGroup>& groups() const = 0;
  /// One at least, each with one history at least.
  virtual const std::vector<TaskHistories>& tasks() const = 0;
  /// Held-out tasks that a list names and of which no histories are there, without steps; their attribute
  /// domain is their group's name.
  virtual std::vector<TaskHistories> unrecorded() const { return {}; }
  /// The path that holds a task, where there are several; else "".
  virtual std::string path_of(size_t /*task*/) const { return ""; }
  /// What looks wrong with a task that can be read all the same, as the end of a message: "; …", or "".
  virtual std::string doubt(size_t /*task*/) const { return ""; }
  /// All files that are read, in the order of tasks and their histories.
  virtual std::vector<std::filesystem::path> files() const { return {}; }
  /// Of inflated chunks that are kept in memory now.
  virtual size_t cached_bytes() const = 0;
  /// Gives that memory back.
  virtual void drop_cached() const {}

  /// Reads `count` steps from `first` on of a history of the task at index `task` of tasks() into `window`,
  /// whose memory is used again. It gets those of `kinds` that the task has, in the order of ColumnKind.
  /// Throws DataError that names file, data set and chunk, and std::out_of_range where there is no such
  /// history or it has no such steps.
  void read(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
            HistoryWindow& window) const;

  /// The same with all columns, in memory of its own.
  HistoryWindow window(size_t task, size_t history, int64_t first, int64_t count) const {
    HistoryWindow window;
    read(task, history, first, count, ColumnKinds::all(), window);
    return window;
  }

  /// Over all tasks and histories.
  int64_t total_histories() const;
  int64_t total_steps() const;

 protected:
  /// `read` of steps that are there.
  virtual void read_columns(size_t task, size_t history, int64_t first, int64_t count,
                            const ColumnKinds& kinds, HistoryWindow& window) const = 0;
};

}  // namespace adtrain
