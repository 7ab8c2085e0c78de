#include "data/HistoryFile.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "data/HistoryFilePath.h"
#include "data/reader/ReaderProcess.h"

namespace adtrain {
namespace {

/// Receives the values of one data set of a task from the reader: (steps, streams) or (steps, streams, 2).
template <class Value>
std::vector<Value> receive_column(ReaderProcess& reader, int64_t values) {
  std::vector<Value> column(static_cast<size_t>(values));
  reader.bytes(column.data(), column.size() * sizeof(Value));
  return column;
}

/// Checks the values of one task, naming the data set and the index of the first that is wrong.
class ValueCheck {
 public:
  ValueCheck(const std::filesystem::path& path, int64_t task, const History& history)
      : place_(fmt::format("{}: data set {}/", path.string(), task)), history_(history) {}

  void expect_below(const char* name, const std::vector<int32_t>& values, int64_t limit) const {
    expect(name, values, fmt::format("0 … {}", limit - 1),
           [limit](int32_t value) { return value >= 0 && value < limit; });
  }

  /// Fails at the first value that is not `allowed`.
  template <class Value, class Predicate>
  void expect(const char* name, const std::vector<Value>& values, const std::string& expected,
              Predicate allowed) const {
    const auto wrong = std::find_if_not(values.begin(), values.end(), allowed);
    if (wrong == values.end()) return;
    const auto index = static_cast<int64_t>(wrong - values.begin());
    const int64_t coordinates = static_cast<int64_t>(values.size()) / (history_.steps * history_.streams);
    const int64_t row = index / coordinates;
    throw DataError(fmt::format("{}{} holds {} at ({}, {}{}); expected {}", place_, name, *wrong,
                                row / history_.streams, row % history_.streams,
                                coordinates > 1 ? fmt::format(", {}", index % coordinates) : "", expected));
  }

 private:
  std::string place_;
  const History& history_;
};

}  // namespace

HistoryFile::HistoryFile(std::filesystem::path path) : path_(std::move(path)) {
  expect_history_file(path_);
  reader_ = std::make_unique<ReaderProcess>();
  reader_->ask({{"do", "open"}, {"path", path_.string()}}, path_.string() + ": opening it");
  const nlohmann::json found = reader_->answer();
  tasks_ = NumberRanges::parse(found.at("tasks").get<std::string>()).value();
  steps_ = found.at("steps");
  streams_ = found.at("streams");
  settings_ = found.at("settings");
}

HistoryFile::~HistoryFile() = default;

History HistoryFile::read(int64_t task, int64_t steps, int64_t streams, const HistoryBounds& bounds) const {
  if (!tasks_.contains(task) || steps > steps_ || streams > streams_) {
    throw DataError(
        fmt::format("{}: holds {} steps × {} streams of the tasks {}; expected to find {} steps × {} streams "
                    "of task {}; lower train_source_timesteps or train_n_stream, or collect more",
                    path_.string(), steps_, streams_, abridged(tasks_.text()), steps, streams, task));
  }
  History history;
  history.steps = steps;
  history.streams = streams;
  {
    const std::lock_guard conversation(mutex_);
    reader_->ask({{"do", "read"}, {"task", task}, {"steps", steps}, {"streams", streams}},
                 fmt::format("{}: reading task {}", path_.string(), task));
    const bool markers = reader_->answer().at("markers");
    const int64_t transitions = steps * streams;
    history.states = receive_column<int32_t>(*reader_, 2 * transitions);
    history.actions = receive_column<int32_t>(*reader_, transitions);
    history.rewards = receive_column<float>(*reader_, transitions);
    history.next_states = receive_column<int32_t>(*reader_, 2 * transitions);
    history.dones = receive_column<uint8_t>(*reader_, transitions);
    if (markers) history.compress_markers = receive_column<int32_t>(*reader_, transitions);
  }
  const ValueCheck check(path_, task, history);
  check.expect_below("states", history.states, bounds.grid_size);
  check.expect_below("actions", history.actions, bounds.num_actions);
  check.expect_below("next_states", history.next_states, bounds.grid_size);
  check.expect_below("compress_markers", history.compress_markers, 3);
  check.expect("rewards", history.rewards, "finite rewards",
               [](float reward) { return std::isfinite(reward); });
  check.expect("dones", history.dones, "0 or 1", [](uint8_t done) { return done <= 1; });
  return history;
}

}  // namespace adtrain
