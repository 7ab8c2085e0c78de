#include "data/formats/ListedTasks.h"

#include <fmt/format.h>

#include "base/Text.h"
#include "config/Scalar.h"
#include "data/formats/TaskTable.h"

namespace adtrain {
namespace {

constexpr const char* kExpected =
    "expected a map of tasks as Vintix has it, such as 'Ant-v4: {path: ant_v4, group: mujoco, reward_scale: "
    "0.1}'";

const std::vector<std::string>& known_keys() {
  static const std::vector<std::string> kKeys = {
      "path",          "group",        "type",        "reward_scale", "episode_sparsity",
      "episode_range", "random_score", "expert_score"};
  return kKeys;
}

/// A key that is nearly a known one would be passed over in silence, and what it says lost.
void refuse_slips(const TaskTable::Row& row) {
  for (const std::string& field : row.fields()) {
    const std::string nearest = nearest_name(field, known_keys());
    if (nearest.empty() || nearest == field) continue;
    row.refuse(field, fmt::format("is no key of a task; did you mean {}?", nearest));
  }
}

bool is_trained(const TaskTable::Row& row) {
  const std::string type = row.text("type").value_or("default");
  if (type == "default" || type == "test") return type == "default";
  const std::string nearest = nearest_name(type, {"default", "test"});
  row.refuse("type",
             fmt::format("is '{}'; expected default, which is trained on, or test, which is held "
                         "out{}",
                         abridged(type), nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

void check_numbers(const TaskTable::Row& row) {
  row.number("random_score");
  row.number("expert_score");
  if (const auto scale = row.number("reward_scale"); scale && *scale <= 0)
    row.refuse("reward_scale", fmt::format("is {}; expected a number above 0", *scale));
  const auto sparsity = row.text("episode_sparsity");
  if (sparsity && Scalar<int64_t>::parse(*sparsity).value_or(0) < 1)
    row.refuse("episode_sparsity", fmt::format("is '{}'; expected a whole number above 0", *sparsity));
  const auto range = row.numbers("episode_range");
  if (!range) return;
  if (range->size() == 2 && 0 <= range->front() && range->front() < range->back() && range->back() <= 1)
    return;
  row.refuse("episode_range",
             fmt::format("is no part of all episodes; expected two shares from 0 to 1, such as [0, 0.5]"));
}

}  // namespace

bool is_task_list(const std::filesystem::path& path) {
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

std::vector<ListedTask> read_listed_tasks(const std::filesystem::path& list,
                                          const std::filesystem::path& folder) {
  const TaskTable table = TaskTable::read(list, kExpected);
  std::vector<ListedTask> tasks;
  for (const TaskTable::Row& row : table.rows()) {
    refuse_slips(row);
    check_numbers(row);
    ListedTask task;
    task.name = row.name();
    task.group = row.text("group").value_or("");
    task.trained = is_trained(row);
    const auto path = row.text("path");
    if (!path || path->empty()) row.refuse("path", "is not there; expected the folder of its histories");
    task.folder = (folder / *path).lexically_normal();
    if (!task.folder.has_filename()) task.folder = task.folder.parent_path();
    task.place = row.place("path");
    for (const std::string& field : row.fields()) {
      if (field == "episode_range") {
        const std::vector<double> range = row.numbers(field).value();
        task.attributes[field] = fmt::format("{},{}", range.front(), range.back());
      } else if (field != "path" && row.is_text(field)) {
        task.attributes[field] = row.text(field).value();
      }
    }
    tasks.push_back(std::move(task));
  }
  return tasks;
}

}  // namespace adtrain
