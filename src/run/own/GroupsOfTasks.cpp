#include "run/own/GroupsOfTasks.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/NumberRanges.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {
namespace {

/// Names become parts of the names of parameters, which have points between their parts.
std::string safe(std::string name) {
  for (char& letter : name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '-') letter = '_';
  }
  return name;
}

/// "box4", "multidiscrete5x5", "discrete6".
std::string short_name(const std::optional<Space>& space) {
  if (!space) return "unknown";
  const std::string shape = fmt::format("{}", fmt::join(space->shape, "x"));
  switch (space->kind) {
    case Space::Kind::kBox:
      return "box" + shape;
    case Space::Kind::kMultiDiscrete:
      return "multidiscrete" + shape;
    default:
      return fmt::format("discrete{}", space->values.front());
  }
}

std::string short_name(const GroupOfTasks& group) {
  return short_name(group.observation) + "-" + short_name(group.action);
}

bool are_one(const GroupOfTasks& a, const GroupOfTasks& b) {
  return a.domain == b.domain && a.observation == b.observation && a.action == b.action &&
         a.packed_digits == b.packed_digits && a.states == b.states && a.actions == b.actions;
}

/// A space that says no more than how its numbers are stored.
bool is_unbounded(const Space& space) {
  return space.kind == Space::Kind::kBox &&
         std::ranges::all_of(space.low, [](double bound) { return std::isinf(bound); }) &&
         std::ranges::all_of(space.high, [](double bound) { return std::isinf(bound); });
}

std::string text_of(const std::optional<Space>& space) {
  return space ? space->text() : "not described";
}

}  // namespace

bool may_be_said(const std::optional<Space>& in_data, const Space& said) {
  if (!in_data || said == *in_data) return true;
  return is_unbounded(*in_data) && said.kind == Space::Kind::kBox && said.shape == in_data->shape &&
         said.type == in_data->type;
}

std::optional<size_t> GroupOfTasks::place_among(const std::vector<TaskSpaces>& trained) const {
  std::vector<size_t> fitting;
  for (size_t place = 0; place < trained.size(); ++place) {
    const TaskSpaces& spaces = trained[place];
    const bool fits = may_be_said(observation, spaces.observation) && may_be_said(action, spaces.action) &&
                      (packed_digits.empty() || packed_digits == spaces.packed_digits);
    if (!fits) continue;
    if (spaces.group == name || (!domain.empty() && spaces.group == safe(domain))) return place;
    fitting.push_back(place);
  }
  const bool may_be_unnamed = trained.size() == 1 || domain.empty();
  return may_be_unnamed && fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

GroupsOfTasks::GroupsOfTasks(const HistorySource& source) {
  std::vector<std::optional<size_t>> known(source.groups().size());  // of the source's own groups
  for (size_t task = 0; task < source.tasks().size(); ++task) {
    std::optional<size_t>& place = known[source.tasks()[task].group];
    if (!place) {
      const SpaceGroup& stored = source.groups()[source.tasks()[task].group];
      GroupOfTasks group{"",
                         stored.name,
                         stored.observation,
                         stored.action,
                         stored.packed_digits,
                         *stored.find(ColumnKind::kObservations),
                         *stored.find(ColumnKind::kActions),
                         {}};
      const auto same =
          std::ranges::find_if(groups_, [&](const GroupOfTasks& other) { return are_one(group, other); });
      place = static_cast<size_t>(same - groups_.begin());
      if (same == groups_.end()) groups_.push_back(std::move(group));
    }
    groups_[*place].tasks.push_back(task);
    group_of_.push_back(*place);
  }
  name_groups();
}

void GroupsOfTasks::name_groups() {
  const auto of_domain = [&](const std::string& domain) {
    return std::ranges::count(groups_, domain, &GroupOfTasks::domain);
  };
  std::set<std::string> taken;
  for (GroupOfTasks& group : groups_) {
    std::string name = safe(group.domain);
    if (name.empty()) {
      name = short_name(group);
    } else if (of_domain(group.domain) > 1) {
      name += "-" + short_name(group);
    }
    group.name = name;
    for (int64_t number = 2; !taken.insert(group.name).second; ++number)
      group.name = fmt::format("{}-{}", name, number);
  }
}

bool GroupsOfTasks::is_chosen(size_t group, const std::optional<std::string>& names) const {
  if (!names) return true;
  return std::ranges::any_of(between_commas(*names), [&](const std::string& name) {
    return name == groups_[group].name || name == groups_[group].domain;
  });
}

std::vector<std::string> GroupsOfTasks::texts(const std::function<int64_t(size_t)>& number_of) const {
  std::vector<std::string> lines;
  for (const GroupOfTasks& group : groups_) {
    std::vector<int64_t> numbers;
    for (const size_t task : group.tasks) numbers.push_back(number_of(task));
    lines.push_back(fmt::format("{}: observations {}, actions {}, tasks {}", group.name,
                                text_of(group.observation), text_of(group.action),
                                abridged(NumberRanges::of(numbers).text())));
  }
  return lines;
}

}  // namespace adtrain
