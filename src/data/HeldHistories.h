#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/SharedBytes.h"
#include "data/formats/HistorySource.h"

namespace adtrain {

/// Histories of another source of which parts are held in memory, which several processes may share: columns,
/// each number as narrow as it is stored and packed as it is. What is not held is read from that source.
///
/// Columns of a kind lie one behind the other, those of tasks with equal columns together, in the order in
/// which their parts are named; so a GPU takes a column of all of them as one.
class HeldHistories final : public HistorySource {
 public:
  /// What is held of a task.
  struct Part {
    size_t task;       ///< place in the source
    size_t histories;  ///< the first so many, or all there are
    int64_t steps;     ///< of each history the first so many, or all there are
  };
  /// Checks steps of a history that have been read; returns what is wrong with them, or "".
  using Check =
      std::function<std::string(size_t task, size_t history, int64_t first, const HistoryWindow& steps)>;

  /// Of the parts, whose tasks differ, the columns of these kinds. The source is borrowed. Reads nothing.
  HeldHistories(const HistorySource& source, const std::vector<Part>& parts, const ColumnKinds& kinds);

  /// What the columns take in memory.
  size_t bytes() const { return bytes_; }
  /// Histories that are held: the pieces of the memory.
  size_t held_histories() const { return histories_.size(); }
  /// Takes memory of bytes() bytes and reads those histories into it that this process fills, by `threads`
  /// threads; `on_history` is called behind each. They are held once all sharers are done. Returns what
  /// `check` has found wrong first, which is held all the same; "" where nothing is. Throws as the source
  /// does. Must be called before anything is read.
  std::string load(
      const SharedBytes& memory, size_t threads, const Check& check,
      const std::function<void()>& on_history = [] {});

  /// A history's part that is held, whose columns of `kind` begin at step `first_step` of column().
  struct Place {
    size_t group;        ///< of the source
    int64_t first_step;  ///< among those of its group
    int64_t steps;
  };
  /// Nothing where it is not held.
  std::optional<Place> place_of(size_t task, size_t history) const;
  /// The column of a group, of all of its steps that are held; null where it has none of that kind.
  const uint8_t* column(size_t group, ColumnKind kind) const;

  HistoryFormat format() const override { return source_.format(); }
  std::string format_names() const override { return source_.format_names(); }
  std::string description() const override { return source_.description(); }
  const std::vector<SpaceGroup>& groups() const override { return source_.groups(); }
  const std::vector<TaskHistories>& tasks() const override { return source_.tasks(); }
  std::vector<TaskHistories> unrecorded() const override { return source_.unrecorded(); }
  std::string path_of(size_t task) const override { return source_.path_of(task); }
  std::string doubt(size_t task) const override { return source_.doubt(task); }
  std::vector<std::filesystem::path> files() const override { return source_.files(); }
  size_t cached_bytes() const override { return bytes_ + source_.cached_bytes(); }
  void drop_cached() const override { source_.drop_cached(); }

 protected:
  void read_columns(size_t task, size_t history, int64_t first, int64_t count, const ColumnKinds& kinds,
                    HistoryWindow& window) const override;

 private:
  /// Tasks with equal columns.
  struct Group {
    std::vector<ColumnType> columns;  ///< those that are held
    std::vector<size_t> at;           ///< where each of them begins
    ColumnKinds lacking;              ///< kinds that the source has and that are not held
    int64_t steps = 0;
  };
  struct History {
    size_t task, history;
    Place place;
  };
  uint8_t* place_of_rows(const Group& group, size_t column, int64_t step) const {
    return memory_.bytes.get() + group.at[column] +
           static_cast<size_t>(step) * group.columns[column].row_bytes();
  }

  const HistorySource& source_;
  ColumnKinds kinds_;
  std::vector<Group> groups_;       ///< by place among those of the source
  std::vector<History> histories_;  ///< in the order of the parts
  struct OfTask {
    size_t first = 0, count = 0;  ///< among histories_
  };
  std::vector<OfTask> of_task_;  ///< by place in the source
  size_t bytes_ = 0;
  SharedBytes memory_;
};

}  // namespace adtrain
