#include "data/HistorySetReader.h"

#include <future>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/NumberRanges.h"
#include "base/Text.h"
#include "data/HistoryReplay.h"
#include "data/Transition.h"

namespace adtrain {
namespace {

/// Throws where a setting asks for more than the file holds, and names it.
void check_fits(const std::filesystem::path& path, const HistoryFile& file,
                const HistorySelection& selection) {
  const auto check = [&](const char* what, int64_t held, int64_t wanted, const char* setting) {
    if (wanted <= held) return;
    throw DataError(fmt::format(
        "{} holds {} {}, {} are asked for; expected at most what the file holds: lower {}, or collect "
        "longer histories under another alg_seed",
        path.string(), held, what, wanted, setting));
  };
  check("steps a history", file.steps(), selection.steps, "train_source_timesteps");
  check("streams a task", file.streams(), selection.streams, "train_n_stream");
  const NumberRanges missing = NumberRanges::of(selection.tasks).without(file.tasks());
  if (missing.empty()) return;
  throw DataError(fmt::format(
      "{} holds the tasks {}, and {} are asked for too; expected those that the file holds: name them "
      "(tasks, train_tasks), name the family that the file was collected on (env, grid_size), or collect all "
      "tasks anew with `adtrain collect --overwrite`, which replaces the file",
      path.string(), abridged(file.tasks().text()), abridged(missing.text())));
}

}  // namespace

HistorySetReader::HistorySetReader(std::filesystem::path path, HistorySelection selection)
    : path_(std::move(path)), selection_(std::move(selection)), file_(path_) {
  check_collected_with(path_, file_.settings(), selection_.settings);
  check_fits(path_, file_, selection_);
}

size_t HistorySetReader::bytes() const {
  return selection_.tasks.size() * static_cast<size_t>(selection_.streams * selection_.steps) *
         sizeof(Transition);
}

HistorySet HistorySetReader::read(const SharedBytes& memory, const std::function<void()>& on_task) const {
  const HistoryBounds bounds = {selection_.family.grid_size(), selection_.family.num_actions()};
  auto* const first = reinterpret_cast<Transition*>(memory.bytes.get());
  std::vector<size_t> places;  // of the tasks that this process reads
  for (size_t place = 0; place < selection_.tasks.size(); ++place) {
    if (memory.fills(place)) places.push_back(place);
  }
  // While one task is checked and transposed, the next one is read.
  const auto begin_reading = [&](size_t index) {
    return std::async(std::launch::async, [&, index] {
      return file_.read(selection_.tasks[places[index]], selection_.steps, selection_.streams, bounds);
    });
  };
  std::future<History> reading;
  if (!places.empty()) reading = begin_reading(0);
  for (size_t index = 0; index < places.size(); ++index) {
    const History history = reading.get();
    if (index + 1 < places.size()) reading = begin_reading(index + 1);
    check_by_replay(path_.string(), selection_.tasks[places[index]], history, selection_.family);
    Transition* next = first + places[index] * static_cast<size_t>(selection_.streams * selection_.steps);
    for (int64_t stream = 0; stream < selection_.streams; ++stream) {
      for (int64_t step = 0; step < selection_.steps; ++step) {
        const size_t i = history.at(step, stream);
        const auto small = [](int32_t value) { return static_cast<uint8_t>(value); };
        *next++ = {{small(history.states[2 * i]), small(history.states[2 * i + 1])},
                   {small(history.next_states[2 * i]), small(history.next_states[2 * i + 1])},
                   small(history.actions[i]),
                   history.rewards[i]};
      }
    }
    on_task();
  }
  const auto checksum = file_.settings().find(kContentChecksum);
  return {selection_.steps,
          {memory.bytes, first},
          bytes() / sizeof(Transition),
          checksum == file_.settings().end() ? "" : checksum->second};
}

}  // namespace adtrain
