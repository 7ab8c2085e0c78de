#include "run/TaskLists.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/NumberRanges.h"
#include "base/Text.h"
#include "base/Words.h"
#include "evaluation/EvaluationOptions.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEvaluated = "eval_tasks";

/// One key's list, as far as it has been read.
struct TaskList {
  std::vector<NumberRange> ranges;
  std::optional<std::string> error;
};

std::optional<fs::path> file_called(const std::string& name, const Origin& origin) {
  const bool in_file = origin.line > 0;
  for (const fs::path& folder : {in_file ? fs::path(origin.source).parent_path() : fs::path(), fs::path()}) {
    std::error_code absent;
    if (!name.empty() && fs::is_regular_file(folder / name, absent)) return folder / name;
  }
  return std::nullopt;
}

void read_numbers(const fs::path& file, TaskList& list) {
  std::ifstream stream(file);
  const size_t before = list.ranges.size();
  int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::string text = trimmed(line.substr(0, line.find('#')));
    if (text.empty()) continue;
    const auto ranges = NumberRanges::parse(text);
    if (!ranges) {
      list.error =
          fmt::format("{}:{}: found '{}'; expected a task's number, or a range such as 0-39, on a line",
                      file.string(), number, abridged(text));
      return;
    }
    list.ranges.insert(list.ranges.end(), ranges->ranges().begin(), ranges->ranges().end());
  }
  if (stream.bad() || number == 0 || list.ranges.size() == before) {
    list.error = fmt::format("{}: found no task there; expected a task's number, or a range, on each line",
                             file.string());
  }
}

/// What a range may be meant by that is written in another notation; empty where it is none.
std::string range_meant(const std::string& text) {
  for (const char* sign : {"..", ":", "–"}) {
    const size_t place = text.find(sign);
    if (place == std::string::npos) continue;
    std::string with_dash = text;
    with_dash.replace(place, std::string_view(sign).size(), "-");
    if (NumberRanges::parse(with_dash)) return with_dash;
  }
  return "";
}

std::string refusal_of(const std::string& item, const std::string& key) {
  const auto range = NumberRange::parse(item);
  if (range) return fmt::format("found '{}', which ends before it begins; expected such as 0-39", item);
  const bool words = key == kEvaluated;
  std::string meant = range_meant(item);
  if (meant.empty() && words) meant = nearest_name(item, {"test", "train", "all"});
  return fmt::format(
      "found '{}'; expected {}numbers of tasks, ranges such as 0-39 (both ends included), or files "
      "with one a line; there is no such file{}",
      abridged(item), words ? "test, train or all; or " : "",
      meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

TaskList read_list(const std::vector<std::string>& items, const Entry& entry) {
  TaskList list;
  if (items.empty()) list.error = fmt::format("found {}; expected one task at least", entry.found());
  for (const std::string& item : items) {
    if (list.error) break;
    if (const auto ranges = NumberRanges::parse(item)) {
      list.ranges.insert(list.ranges.end(), ranges->ranges().begin(), ranges->ranges().end());
    } else if (const auto file = file_called(item, entry.origin)) {
      read_numbers(*file, list);
    } else {
      list.error = refusal_of(item, entry.key);
    }
  }
  return list;
}

}  // namespace

void unfold_task_lists(Document& document) {
  for (const char* key : {"tasks", "train_tasks", kEvaluated}) {
    const Entry* const found = document.find(key);
    if (found == nullptr || found->kind == Entry::Kind::kNull || found->kind == Entry::Kind::kMap) continue;
    const bool listed = found->kind == Entry::Kind::kList;
    const std::vector<std::string> items = listed ? document.texts_of(key) : between_commas(found->text);
    if (key == kEvaluated && items.size() == 1 && names_a_side(to_lower(items.front()))) {
      document.replace(key, to_lower(items.front()));
      continue;
    }
    const TaskList list = read_list(items, *found);
    if (list.error) {
      document.refuse(key, *list.error);
    } else {
      document.replace(key, NumberRanges(list.ranges).text());
    }
  }
}

}  // namespace adtrain
