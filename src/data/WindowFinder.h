#pragma once

#include <cstdint>

namespace adtrain {

/// Number `i` of `count` numbers that are evenly spread over 0 … total − 1: i·total ÷ count, rounded down.
constexpr int64_t spread(int64_t i, int64_t count, int64_t total) {
  __extension__ using Wide = __int128;  // the product of two numbers of windows
  return static_cast<int64_t>(static_cast<Wide>(i) * total / count);
}

/// The last place below `count` whose value in ascending `values` is at most `value`; values[0] is.
constexpr int64_t last_not_above(const int64_t* values, int64_t count, int64_t value) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (values[middle] <= value ? low : high) = middle;
  }
  return low;
}

/// Finds samples among the histories that windows are cut from: ColumnWindowIndex's arithmetic, which CUDA
/// kernels do too. Borrows its tables. A value.
struct WindowFinder {
  const int64_t* first_window;   ///< of each history, and behind the last one
  const int64_t* first_history;  ///< of each task, and behind the last one
  int64_t histories, tasks;
  int64_t most_of_a_task;  ///< windows of the task that has the most
  int64_t size;            ///< samples
  bool tasks_alike;        ///< each task is drawn equally often
  int64_t packed_rows;     ///< of short histories: samples behind all windows

  struct Place {
    int64_t history;  ///< among all that windows are cut from; `histories`: a packed row
    int64_t window;   ///< among those of that history; of packed rows: among those
  };
  constexpr Place find(int64_t sample) const {
    const int64_t windows = first_window[histories];
    const int64_t all = tasks_alike ? most_of_a_task * tasks : windows + packed_rows;
    if (size < all) sample = spread(sample, size, all);
    if (tasks_alike) {
      const int64_t task = sample / most_of_a_task;
      const int64_t first = first_window[first_history[task]], end = first_window[first_history[task + 1]];
      sample = first + spread(sample % most_of_a_task, most_of_a_task, end - first);
    }
    if (sample >= windows) return {histories, sample - windows};
    // Of histories without a window several have the same first one: the last of them has it.
    const int64_t history = last_not_above(first_window, histories, sample);
    return {history, sample - first_window[history]};
  }
};

}  // namespace adtrain
