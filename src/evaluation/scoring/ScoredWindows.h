#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/Batch.h"

namespace adtrain {

/// The windows of histories that a model is shown, by number: in order of (task, stream, position), tasks
/// being in the order of tasks(), and positions those of the step whose action is predicted. Thread-safe.
class ScoredWindows {
 public:
  /// A task of the histories.
  struct Task {
    int64_t number;  ///< as the split numbers it
    std::string name;
    bool trained;  ///< whether the run has trained on it

    bool operator==(const Task&) const = default;
  };
  /// Where a window's action was taken.
  struct Place {
    int64_t task;      ///< its number
    int64_t stream;    ///< which of its histories
    int64_t position;  ///< which step of that history
    size_t group;      ///< of equal spaces, by place among the model's
  };
  virtual ~ScoredWindows() = default;

  virtual int64_t size() const = 0;
  virtual Place place(int64_t window) const = 0;
  /// Rows of these windows, which are of one group; the query of each is the action's state. Throws as
  /// BatchAssembler does.
  virtual Batch assemble(std::span<const int64_t> windows) const = 0;
  /// Identifies the histories: a text of hexadecimal digits.
  virtual const std::string& digest() const = 0;
  /// For people.
  virtual std::string description() const = 0;

  const std::vector<Task>& tasks() const { return tasks_; }

 protected:
  explicit ScoredWindows(std::vector<Task> tasks) : tasks_(std::move(tasks)) {}

 private:
  std::vector<Task> tasks_;
};

}  // namespace adtrain
