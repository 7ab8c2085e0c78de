#pragma once

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/Random.h"
#include "data/ColumnWindows.h"
#include "data/HeldHistories.h"
#include "data/MemoryHistories.h"
#include "data/formats/Episodes.h"

namespace adtrain {

/// Histories of random types, shapes and values, of which some tasks are trained on, with a random way of
/// cutting them; for tests that compare ways of reading them.
class RandomColumns {
 public:
  explicit RandomColumns(RandomStream& random)
      : source(random_columns(random)),
        spaces{box_of(ColumnKind::kObservations), box_of(ColumnKind::kActions), {}} {
    for (size_t task = 0, tasks = 2 + random.below(4); task < tasks; ++task) {
      for (int64_t history = 0, count = 1 + random.below(3); history < count; ++history)
        fill(source.add(task, 40 + random.below(100)), random);
      if (task == 0 || random.below(4) > 0)
        trained.push_back(task);
      else
        held_out.push_back(task);
    }
    shape = {.length = 1 + random.below(12), .stride = 1 + random.below(7), .margin = random.below(2)};
    // More than a thread block's steps at a time, now and then.
    if (random.below(6) == 0) {
      for (const size_t task : trained) fill(source.add(task, 600), random);
      shape.length = 300;
    }
    if (random.below(3) == 0) shape.last_fraction = 0.5;
    if (random.below(3) == 0) shape.steps = 35;
    if (shape.length == 300) shape.steps = kAllThereAre;
    if (random.below(3) == 0) shape.weights = TaskWeights::kTasks;
    if (EpisodeFinder::can_tell(source.groups().front().columns) && random.below(2) == 0)
      shape.episode_stride = shape.length == 300 ? 1 : 2;
    if (random.below(3) == 0) pack(random);
    const bool normalised = random.below(2) == 0;
    for (size_t i = 0; i < trained.size(); ++i) {
      TaskScale scale;
      scale.reward_scale = random.uniform() + 0.1;
      for (int64_t j = 0; normalised && j < spaces.observation.size(); ++j) {
        scale.mean.push_back(random.normal());
        scale.deviation.push_back(random.uniform() + 0.1);
      }
      scales.push_back(scale);
    }
  }

  /// What is held of the tasks that are trained on, then of the others.
  HeldHistories holding() const {
    constexpr auto kAll = std::numeric_limits<int64_t>::max();
    const int64_t steps = shape.steps == kAllThereAre ? kAll : shape.steps;
    std::vector<HeldHistories::Part> parts;
    for (const size_t task : trained) parts.push_back({task, std::numeric_limits<size_t>::max(), steps});
    for (const size_t task : held_out) parts.push_back({task, 1, steps});
    return {source, parts, ColumnWindows::kinds()};
  }

  ColumnWindows windows(const HistorySource& from, const HeldHistories* held = nullptr) const {
    return {ColumnWindows::Origin{from, trained, {spaces}, "random", {}, held, held != nullptr}, shape,
            scales};
  }

  std::string text() const {
    std::string columns;
    for (const ColumnType& column : source.groups().front().columns)
      columns +=
          fmt::format("{} {} ({} B a row); ", name_of(column.kind), name_of(column.type), column.row_bytes());
    return fmt::format("{}length {}, stride {}, margin {}, episode stride {}{}", columns, shape.length,
                       shape.stride, shape.margin, shape.episode_stride, shape.packed ? ", packed" : "");
  }

  MemoryHistories source;
  TaskSpaces spaces;
  std::vector<size_t> trained, held_out;
  ColumnWindowShape shape;
  std::vector<TaskScale> scales;

  /// Longer rows, into which most of the histories go several at a time.
  void pack(RandomStream& random) {
    shape.packed = true;
    shape.packing_seed = random.next();
    shape.length = 60 + random.below(300);
    shape.last_fraction = 1;
    shape.weights = TaskWeights::kWindows;
  }

 private:
  static std::vector<ColumnType> random_columns(RandomStream& random) {
    const auto type = [&] { return static_cast<ElementType>(random.below(12)); };
    const auto row = [&] {
      std::vector<int64_t> shape;
      for (int64_t axes = random.below(3), axis = 0; axis < axes; ++axis)
        shape.push_back(1 + random.below(5));
      return shape;
    };
    std::vector<ColumnType> columns = {{ColumnKind::kObservations, type(), row()},
                                       {ColumnKind::kActions, type(), row()},
                                       {ColumnKind::kRewards, type(), {}}};
    const int64_t told = random.below(5);
    if (told == 0) columns.push_back({ColumnKind::kEnds, ElementType::kBool, {}});
    if (told == 1 || told == 2) columns.push_back({ColumnKind::kTerminations, ElementType::kBool, {}});
    if (told == 2) columns.push_back({ColumnKind::kTruncations, ElementType::kUint8, {}});
    if (told == 3) columns.push_back({ColumnKind::kStepNumbers, ElementType::kInt32, {}});
    return columns;
  }

  Space box_of(ColumnKind kind) const {
    const double bound = std::numeric_limits<double>::infinity();
    const ColumnType& column = *source.groups().front().find(kind);
    return Space::box(column.row, {-bound}, {bound});
  }

  /// Any bits, but for those of numbers that are not finite; an episode ends on every fifth step, or so.
  static void fill(HistoryWindow& history, RandomStream& random) {
    for (Column& column : history.columns) {
      const bool flag = column.type.kind != ColumnKind::kObservations &&
                        column.type.kind != ColumnKind::kActions && column.type.kind != ColumnKind::kRewards;
      const size_t item = size_of(column.type.type);
      for (size_t i = 0; i < column.bytes.size(); ++i) {
        column.bytes[i] = static_cast<uint8_t>(random.below(256));
        if (column.type.type == ElementType::kBool) column.bytes[i] &= 1;
        if (!is_whole(column.type.type) && i % item == item - 1) column.bytes[i] &= 0xbf;
        if (flag) column.bytes[i] = i % item == 0 && random.below(5) == 0 ? 1 : 0;
      }
      // Numbers of steps, of which every fifth is 0: the other way round.
      for (size_t i = 0; column.type.kind == ColumnKind::kStepNumbers && i < column.bytes.size(); i += item)
        column.bytes[i] ^= 1;
    }
  }
};

/// Which of the batches' tensors differ; "" where none does.
inline std::string difference(const Batch& found, const Batch& expected) {
  const std::pair<const char*, at::Tensor Batch::*> parts[] = {{"states", &Batch::states},
                                                               {"actions", &Batch::actions},
                                                               {"rewards", &Batch::rewards},
                                                               {"before_action", &Batch::before_action},
                                                               {"before_reward", &Batch::before_reward},
                                                               {"begins", &Batch::begins},
                                                               {"state_mean", &Batch::state_mean},
                                                               {"state_deviation", &Batch::state_deviation},
                                                               {"segment_first", &Batch::segment_first},
                                                               {"filled", &Batch::filled},
                                                               {"step_targets", &Batch::step_targets}};
  std::string differing;
  for (const auto& [name, part] : parts) {
    const at::Tensor &one = found.*part, &other = expected.*part;
    const bool same = one.defined() == other.defined() &&
                      (!one.defined() || (one.scalar_type() == other.scalar_type() && one.equal(other)));
    if (!same) differing += fmt::format("{} ", name);
  }
  return differing;
}

}  // namespace adtrain
