#include "adtrain/histories.h"

#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "base/Text.h"
#include "data/HistoryFile.h"

namespace adtrain {
namespace {

/// (steps, streams, …) of the file as (streams, steps, …), in memory of its own.
template <class Value>
at::Tensor by_stream(std::vector<Value>& column, const History& history, at::ScalarType type) {
  std::vector<int64_t> shape = {history.steps, history.streams};
  const int64_t values = static_cast<int64_t>(column.size()) / (history.steps * history.streams);
  if (values > 1) shape.push_back(values);
  return at::from_blob(column.data(), shape, at::CPU(c10::CppTypeToScalarType<Value>::value))
      .transpose(0, 1)
      .to(type, /*non_blocking=*/false, /*copy=*/true, at::MemoryFormat::Contiguous);
}

}  // namespace

class Histories::File : public HistoryFile {
 public:
  using HistoryFile::HistoryFile;
};

Histories::Histories(const std::filesystem::path& file) : file_(std::make_unique<File>(file)) {}
Histories::~Histories() = default;

int64_t Histories::tasks() const {
  return file_->tasks().count();
}

std::vector<int64_t> Histories::task_numbers() const {
  return file_->tasks().numbers();
}

int64_t Histories::steps() const {
  return file_->steps();
}

int64_t Histories::streams() const {
  return file_->streams();
}

const std::map<std::string, std::string>& Histories::settings() const {
  return file_->settings();
}

TaskHistory Histories::read(int64_t task) const {
  if (!file_->tasks().contains(task)) {
    throw std::invalid_argument(fmt::format("Task {} is not in the history file, which has the tasks {}.",
                                            task, abridged(file_->tasks().text())));
  }
  constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
  History history = file_->read(task, steps(), streams(), {.grid_size = kAny, .num_actions = kAny});
  return {by_stream(history.states, history, at::kInt), by_stream(history.actions, history, at::kInt),
          by_stream(history.rewards, history, at::kFloat), by_stream(history.next_states, history, at::kInt),
          by_stream(history.dones, history, at::kBool)};
}

}  // namespace adtrain
