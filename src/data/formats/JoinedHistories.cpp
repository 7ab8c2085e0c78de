#include "data/formats/JoinedHistories.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

/// What the parts say, each text once, in their order.
std::string each_once(const std::vector<JoinedHistories::Part>& parts,
                      const std::function<std::string(const HistorySource&)>& text_of, const char* between) {
  std::vector<std::string> texts;
  for (const JoinedHistories::Part& part : parts) {
    std::string text = text_of(*part.source);
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return join(texts, between);
}

/// By which each path is told from the others: its last name, or all of it where several end alike.
std::vector<std::string> labels_of(const std::vector<JoinedHistories::Part>& parts) {
  std::map<std::string, int> stems;
  for (const JoinedHistories::Part& part : parts) ++stems[part.path.stem().string()];
  std::vector<std::string> labels;
  for (const JoinedHistories::Part& part : parts) {
    const std::string stem = part.path.stem().string();
    labels.push_back(stem.empty() || stems[stem] > 1 ? part.path.string() : stem);
  }
  return labels;
}

}  // namespace

JoinedHistories::JoinedHistories(std::vector<Part> parts) : parts_(std::move(parts)) {
  for (size_t part = 0; part < parts_.size(); ++part) {
    const HistorySource& source = *parts_[part].source;
    const size_t first_group = groups_.size();
    groups_.insert(groups_.end(), source.groups().begin(), source.groups().end());
    for (size_t task = 0; task < source.tasks().size(); ++task) {
      tasks_.push_back(source.tasks()[task]);
      tasks_.back().group += first_group;
      places_.push_back({part, task});
    }
  }
  name_tasks();
  refuse_equal_names();
}

void JoinedHistories::name_tasks() {
  const std::vector<std::string> labels = labels_of(parts_);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskHistories& task = tasks_[i];
    if (task.name == fmt::format("task {}", task.number))
      task.name = fmt::format("{} {}", labels[places_[i].part], task.name);
  }
}

void JoinedHistories::refuse_equal_names() const {
  std::map<std::string, std::vector<size_t>> known;  // by name
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const std::string& group = groups_[tasks_[i].group].name;
    std::vector<size_t>& others = known[tasks_[i].name];
    for (const size_t other : others) {
      const std::string& its = groups_[tasks_[other].group].name;
      if (places_[other].part == places_[i].part) continue;
      if (group != its && !group.empty() && !its.empty()) continue;
      throw DataError(fmt::format(
          "{} and {} both have a task '{}'{}; expected each task in one of the paths: leave one out, or give "
          "the tasks other names",
          path_of(other), path_of(i), abridged(tasks_[i].name),
          group.empty() ? "" : fmt::format(" of group {}", abridged(group))));
    }
    others.push_back(i);
  }
}

std::string JoinedHistories::format_names() const {
  return each_once(
      parts_, [](const HistorySource& source) { return source.format_names(); }, " and ");
}

std::string JoinedHistories::description() const {
  return fmt::format("{} paths; {}", parts_.size(),
                     each_once(
                         parts_, [](const HistorySource& source) { return source.description(); }, "; "));
}

std::vector<TaskHistories> JoinedHistories::unrecorded() const {
  std::vector<TaskHistories> all;
  for (const Part& part : parts_) {
    for (TaskHistories& task : part.source->unrecorded()) all.push_back(std::move(task));
  }
  return all;
}

std::string JoinedHistories::doubt(size_t task) const {
  const Place& place = places_.at(task);
  return parts_[place.part].source->doubt(place.task);
}

std::vector<std::filesystem::path> JoinedHistories::files() const {
  std::vector<std::filesystem::path> all;
  for (const Part& part : parts_) {
    for (std::filesystem::path& file : part.source->files()) all.push_back(std::move(file));
  }
  return all;
}

void JoinedHistories::read_columns(size_t task, size_t history, int64_t first, int64_t count,
                                   const ColumnKinds& kinds, HistoryWindow& window) const {
  const Place& place = places_.at(task);
  parts_[place.part].source->read(place.task, history, first, count, kinds, window);
}

}  // namespace adtrain
