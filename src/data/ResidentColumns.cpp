#include "data/ResidentColumns.h"

#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include "data/HeldHistories.h"
#include "data/TensorType.h"
#include "data/formats/Episodes.h"

namespace adtrain {
namespace {

template <class Value>
at::Tensor copy_to(at::Device device, const Value* values, size_t count, at::ScalarType type) {
  // from_blob takes a mutable pointer; nothing writes through it.
  auto* const data = const_cast<Value*>(values);
  const auto elements = static_cast<int64_t>(count * sizeof(Value) / at::elementSize(type));
  if (elements == 0) return at::empty({0}, at::TensorOptions(device).dtype(type));
  return at::from_blob(data, {elements}, type).to(device, /*non_blocking=*/false, /*copy=*/true);
}

template <class Value>
at::Tensor copy_to(at::Device device, const std::vector<Value>& values, at::ScalarType type) {
  return copy_to(device, values.data(), values.size(), type);
}

int64_t elements_of(const ColumnType& type) {
  return static_cast<int64_t>(type.row_bytes() / size_of(type.type));
}

/// The group of the source in which all tasks' columns are stored.
size_t stored_group(const ColumnWindows& windows) {
  const ColumnWindowIndex::History first = windows.index().history(0);
  return windows.held()->place_of(first.task, first.history)->group;
}

/// Steps of all histories together that windows are cut from: the first ones of what is held.
int64_t steps_of(const ColumnWindows& windows) {
  int64_t steps = 0;
  for (int64_t i = 0; i < windows.index().histories(); ++i) {
    const ColumnWindowIndex::History history = windows.index().history(static_cast<size_t>(i));
    const HeldHistories::Place place = *windows.held()->place_of(history.task, history.history);
    steps = std::max(steps, place.first_step + place.steps);
  }
  return steps;
}

const ColumnType& rewards_of(const ColumnWindows& windows) {
  return *windows.held()->groups()[stored_group(windows)].find(ColumnKind::kRewards);
}

/// Marks the steps on which a history's columns say that an episode begins: in the order in which
/// EpisodeFinder asks them.
void mark_begins(const HeldHistories& held, const ColumnWindowIndex::History& history,
                 const HeldHistories::Place& place, uint8_t* begins) {
  constexpr int64_t kStepsAtOnce = 65536;
  HistoryWindow read;
  bool ended = false;
  for (int64_t first = 0; first < place.steps; first += kStepsAtOnce) {
    held.read(
        history.task, history.history, first, std::min(kStepsAtOnce, place.steps - first),
        {ColumnKind::kEnds, ColumnKind::kTerminations, ColumnKind::kTruncations, ColumnKind::kStepNumbers},
        read);
    const EpisodeEnds ends(read);
    for (int64_t step = 0; step < read.steps; ++step) {
      begins[first + step] = ended || ends.begins(step) ? 1 : 0;
      ended = ends.ends(step);
    }
  }
}

}  // namespace

ResidentColumns::ResidentColumns(const Feed& feed, at::Device device)
    : feed_(feed), windows_(*feed.windows.held_columns()), cursor_(feed, device) {
  copy_tables(device);
  copy_columns(device);
}

int64_t ResidentColumns::history_bytes() const {
  size_t bytes = 0;
  for (const at::Tensor& tensor :
       {states_, actions_, rewards_, begins_, histories_, runs_, first_window_, first_history_, reward_scale_,
        state_mean_, state_deviation_, segments_, first_segment_})
    bytes += tensor.defined() ? tensor.nbytes() : 0;
  return static_cast<int64_t>(bytes);
}

void ResidentColumns::copy_tables(at::Device device) {
  const ColumnWindowIndex& index = windows_.index();
  std::map<size_t, int64_t> places;  // of tasks, by place in the source
  std::vector<float> scales, means, deviations;
  std::vector<CutHistory> histories;
  std::vector<CutRun> runs;
  for (int64_t i = 0; i < index.histories(); ++i) {
    const ColumnWindowIndex::History history = index.history(static_cast<size_t>(i));
    const auto [place, is_new] = places.try_emplace(history.task, std::ssize(places));
    if (is_new) {
      const ColumnWindows::Task& task = windows_.task(history.task);
      scales.push_back(task.reward_scale);
      means.insert(means.end(), task.mean.begin(), task.mean.end());
      deviations.insert(deviations.end(), task.deviation.begin(), task.deviation.end());
    }
    const auto first_run = std::ssize(runs);
    if (history.kept.thinned()) {
      for (const KeptSteps::Run& run : *history.kept.runs()) runs.push_back({run.kept, run.first});
    }
    histories.push_back({windows_.held()->place_of(history.task, history.history)->first_step,
                         history.first_start, first_run, std::ssize(runs) - first_run, place->second});
  }
  const WindowFinder finder = index.finder();
  histories_ = copy_to(device, histories, at::kByte);
  runs_ = copy_to(device, runs, at::kByte);
  first_window_ = copy_to(device, finder.first_window, static_cast<size_t>(finder.histories) + 1, at::kLong);
  first_history_ = copy_to(device, finder.first_history, static_cast<size_t>(finder.tasks) + 1, at::kLong);
  reward_scale_ = copy_to(device, scales, at::kFloat);
  if (windows_.packed()) {
    segments_ = copy_to(device, index.packed().segments(), at::kByte);
    first_segment_ = copy_to(device, index.packed().first_segment(), at::kLong);
  }
  if (!windows_.normalised()) return;
  state_mean_ = copy_to(device, means, at::kFloat);
  state_deviation_ = copy_to(device, deviations, at::kFloat);
}

void ResidentColumns::copy_columns(at::Device device) {
  const HeldHistories& held = *windows_.held();
  const size_t group = stored_group(windows_);
  const int64_t steps = steps_of(windows_);
  const auto column = [&](const ColumnType& type) {
    return copy_to(device, held.column(group, type.kind), static_cast<size_t>(steps) * type.row_bytes(),
                   at::kByte);
  };
  states_ = column(windows_.states());
  actions_ = column(windows_.actions());
  rewards_ = column(rewards_of(windows_));
  reward_type_ = rewards_of(windows_).type;
  std::vector<uint8_t> begins(static_cast<size_t>(steps));
  for (int64_t i = 0; i < windows_.index().histories(); ++i) {
    const ColumnWindowIndex::History history = windows_.index().history(static_cast<size_t>(i));
    const HeldHistories::Place place = *held.place_of(history.task, history.history);
    mark_begins(held, history, place, begins.data() + place.first_step);
  }
  begins_ = copy_to(device, begins, at::kByte);
}

PackedCut ResidentColumns::packed_cut(Batch& batch) const {
  if (!windows_.packed()) return {};
  const auto numbers = batch.begins.options().dtype(at::kInt);
  batch.segment_first = at::empty(batch.begins.sizes(), numbers);
  batch.filled = at::empty({batch.begins.size(0)}, numbers);
  batch.step_targets = at::empty({1}, numbers.dtype(at::kLong));
  return {.segments = reinterpret_cast<const PackedSegment*>(segments_.const_data_ptr()),
          .first_segment = first_segment_.const_data_ptr<int64_t>(),
          .global_batch = feed_.share.global_batch(),
          .segment_first = batch.segment_first.mutable_data_ptr<int32_t>(),
          .filled = batch.filled.mutable_data_ptr<int32_t>(),
          .step_targets = batch.step_targets.mutable_data_ptr<int64_t>()};
}

Batch ResidentColumns::next() {
  const int64_t rows = feed_.share.micro_batch, length = windows_.index().shape().length;
  const ColumnType &states = windows_.states(), &actions = windows_.actions();
  const at::Device device = cursor_.device();
  const auto floats = at::TensorOptions(device).dtype(at::kFloat);
  Batch batch;
  batch.states = empty_rows(states, {rows, length}, device);
  batch.actions = empty_rows(actions, {rows, length}, device);
  const std::vector<int64_t> known_of = windows_.packed() ? std::vector{rows, length} : std::vector{rows};
  batch.before_action = empty_rows(actions, known_of, device);
  batch.rewards = at::empty({rows, length}, floats);
  batch.before_reward = at::empty(known_of, floats);
  batch.begins = at::empty({rows, length}, floats.dtype(at::kByte));
  if (windows_.normalised()) {
    const ColumnType statistics = {states.kind, ElementType::kFloat32, states.row};
    batch.state_mean = empty_rows(statistics, known_of, device);
    batch.state_deviation = empty_rows(statistics, known_of, device);
  }
  const auto cut_column = [](const at::Tensor& from, const ColumnType& type, const at::Tensor& to,
                             void* before) {
    return CutColumn{.from = from.const_data_ptr<uint8_t>(),
                     .to = to.mutable_data_ptr(),
                     .before = before,
                     .elements = elements_of(type),
                     .from_bytes = static_cast<int32_t>(size_of(type.type)),
                     .to_bytes = static_cast<int32_t>(to.element_size())};
  };
  const auto floats_of = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr;
  };
  WindowFinder finder = windows_.index().finder();
  finder.first_window = first_window_.const_data_ptr<int64_t>();
  finder.first_history = first_history_.const_data_ptr<int64_t>();
  cut_columns(
      {.finder = finder,
       .stride = windows_.index().shape().stride,
       .histories = reinterpret_cast<const CutHistory*>(histories_.const_data_ptr()),
       .runs = reinterpret_cast<const CutRun*>(runs_.const_data_ptr()),
       .order = feed_.order,
       .cursor = cursor_.samples(),
       .first_row = cursor_.first_row(),
       .rows = rows,
       .length = length,
       .states = cut_column(states_, states, batch.states, nullptr),
       .actions = cut_column(actions_, actions, batch.actions, batch.before_action.mutable_data_ptr()),
       .rewards_from = rewards_.const_data_ptr<uint8_t>(),
       .reward_type = reward_type_,
       .reward_scale = floats_of(reward_scale_),
       .rewards = floats_of(batch.rewards),
       .before_reward = floats_of(batch.before_reward),
       .begins_from = begins_.const_data_ptr<uint8_t>(),
       .begins = batch.begins.mutable_data_ptr<uint8_t>(),
       .mean_from = floats_of(state_mean_),
       .deviation_from = floats_of(state_deviation_),
       .mean = floats_of(batch.state_mean),
       .deviation = floats_of(batch.state_deviation),
       .packed = packed_cut(batch)},
      c10::cuda::getCurrentCUDAStream());
  cursor_.advance();
  return batch;
}

}  // namespace adtrain
