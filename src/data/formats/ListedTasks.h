#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace adtrain {

/// A task of one of Vintix's lists, which say what of a folder of tasks is trained on, and how.
struct ListedTask {
  std::string name;              ///< by which environments and scores know it, too
  std::filesystem::path folder;  ///< of its histories
  std::string group;             ///< of equal spaces; "" where the list has none
  bool trained = true;           ///< or held out
  /// What else is said of it, as text: reward_scale, episode_sparsity, episode_range ("0,0.5"), random_score,
  /// expert_score, and what only people read.
  std::map<std::string, std::string> attributes;
  /// "mujoco.yaml:12: 'Ant-v4'", for messages.
  std::string place;
};

/// Whether a path has the name of such a list: it ends in .yaml or .yml.
bool is_task_list(const std::filesystem::path& path);

/// Reads a list (TaskTable). Paths of tasks are relative to `folder`, as they are to the data_dir of Vintix's
/// training configuration. Throws DataError, which names file and line, where a task has no path or a value
/// that the key may not have, and where a key is nearly one that is known.
std::vector<ListedTask> read_listed_tasks(const std::filesystem::path& list,
                                          const std::filesystem::path& folder);

}  // namespace adtrain
