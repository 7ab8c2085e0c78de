#include "environments/worker/WorkerOptions.h"

#include <regex>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {

void WorkerOptions::declare(Section& section) {
  section.key(
      "env_worker", env_worker,
      "Environments of your own for adtrain evaluate, for return_interval in training, and for adtrain "
      "collect "
      "where env is a label: module:function, such as my_envs:make_env, which Python finds in the current "
      "folder or in PYTHONPATH. null: the family's own environments.");
  section.key(
      "env_group", env_group,
      "Where a run was trained on several groups of tasks: the name of the one that env_worker's "
      "environments are of; null: the one whose spaces they have. `adtrain collect` writes it into the "
      "file as the group of its tasks.");
  section.key(
      "env_python", env_python,
      "The Python that they run under: a program, or a command such as apptainer exec mine.sif python3.");
  section
      .key("env_workers", env_workers,
           "Processes of each rank that share its environments; in collecting of each task that is learnt.")
      .unit("processes")
      .at_least(1)
      .at_most(1024);
  section.key(
      "env_overlap", env_overlap,
      "Two halves of the environments step in turn, one while the model chooses actions for the other. "
      "Without it all step at once, and forward passes have the same shapes as without a worker.");
  section
      .key("env_timeout", env_timeout,
           "After how long without an answer a worker is taken to hang, and ended.")
      .unit("seconds")
      .above(0)
      .at_most(86400);
  section
      .key("max_episode_steps", max_episode_steps,
           "Longer episodes of a worker are truncated there. Episodes end as the environments say before "
           "that.")
      .unit("steps")
      .at_least(1)
      .at_most(1e9);
  section.key("clip_actions", clip_actions,
              "Actions that are real numbers are clipped to the bounds of a worker's action space.");
  section
      .key("env_random_episodes", env_random_episodes,
           "Episodes of uniformly random actions that are played in a worker for each task, to measure the "
           "random return; 0: it is not reported.")
      .unit("episodes")
      .at_least(0)
      .at_most(1e6);
  section.all_free_on_resume();
}

void WorkerOptions::check(Findings& findings) const {
  static const std::regex kModuleAndFunction(R"([A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)");
  if (env_worker && !std::regex_match(*env_worker, kModuleAndFunction)) {
    findings.add("env_worker", fmt::format("found '{}'; expected a module and a function of it with a colon "
                                           "between, such as my_envs:make_env",
                                           abridged(*env_worker)));
  }
  if (env_python.find_first_not_of(' ') == std::string::npos) {
    findings.add("env_python", "found nothing; expected a Python, such as python3");
  }
}

}  // namespace adtrain
