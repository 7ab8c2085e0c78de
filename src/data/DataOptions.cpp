#include "data/DataOptions.h"

namespace adtrain {

void DataOptions::declare(Section& section) {
  section
      .key("traj_dir", traj_dir,
           "Folder of the learning histories: `adtrain collect` writes there, training reads. Paths in "
           "Vintix's lists of tasks are relative to it.")
      .free_on_resume();
  section
      .key("train_source_timesteps", train_source_timesteps,
           "Only this many first steps of each history are used, for training and the held-out loss; all: of "
           "tasks of your own, whose default it is.")
      .unit("steps")
      .at_least(2)
      .or_word("all", kAllThereAre);
  section
      .key("train_n_stream", train_n_stream,
           "Streams of each training task that are used; held-out tasks use one. all: of tasks of your own, "
           "whose default it is.")
      .unit("streams")
      .at_least(1)
      .or_word("all", kAllThereAre);
  section
      .key("episode_stride", episode_stride,
           "Keeps every k-th episode of a history (every phase is used), so that a context of the same "
           "length spans k times as much learning. 1 keeps all, as published. Of tasks of your own only the "
           "phase of the first episode is used, by the data's own ends of episodes.")
      .unit("episodes")
      .at_least(1);
  section
      .key("borrowed_episodes", borrowed_episodes,
           "Share of the windows whose first episodes are replaced by some of other tasks' histories, "
           "without rewards, in which the agent never came to where the window's own task pays first. They "
           "are context alone, no targets: the model learns what to do after vain exploration. Figures of "
           "training count them as positions without loss. For families whose tasks differ in their rewards "
           "alone: darkroom and darkkeytodoor.")
      .at_least(0)
      .at_most(1);
  section.key(
      "least_final_return", least_final_return,
      "Trains only on tasks that the source has learnt: whose histories earn at least this an episode, on "
      "average over the episodes that end in the last tenth of their steps (train_source_timesteps), or over "
      "the last whole ones where none does, and over their streams (train_n_stream). null: on all. Tasks of "
      "a family.");
  section
      .key("num_workers", num_workers,
           "Threads of each rank that assemble batches ahead of need; 0 assembles them in the training "
           "thread.")
      .unit("threads")
      .at_least(0)
      .at_most(256)
      .free_on_resume();
  section
      .key("histories_on_gpu", histories_on_gpu,
           {{"auto", HistoriesOnGpu::kAuto}, {"on", HistoriesOnGpu::kOn}, {"off", HistoriesOnGpu::kOff}},
           "Whether each GPU holds the histories and cuts its batches itself; auto does where they fit "
           "into a quarter of its free memory (tasks of your own: of every GPU's, and half of what their "
           "machine has available). Without it num_workers threads feed it.")
      .free_on_resume();
  declare_any_space(section);
}

void DataOptions::declare_any_space(Section& section) {
  section
      .key("histories", histories,
           "Tasks of your own: files and folders of histories (docs/history-formats.md), which are read in "
           "place (Minari's are imported first: adtrain import histories): one, a list, or several with "
           "commas between; patterns such as data/*.hdf5; and Vintix's lists of tasks (mujoco.yaml), whose "
           "paths are relative to traj_dir. null: the file that `adtrain collect` writes to traj_dir.")
      .free_on_resume(", as long as the histories are the same");
  section.key("history_format", history_format, "Format of `histories`; auto: recognised by what is there.")
      .one_of({"auto", "adtrain", "xland", "vintix"})
      .free_on_resume();
  section.key("history_group", history_group,
              "Where `histories` has groups of tasks with different spaces: the names of those that are "
              "trained on, with commas between; null: all.");
  section
      .key(
          "history_cache", history_cache,
          "Memory for `histories`, of each rank. Where those that the run uses fit into that of all ranks "
          "of a machine, they are read into it once, one copy for these ranks; else each rank keeps inflated "
          "chunks there, which neighbouring windows share.")
      .unit("MiB")
      .at_least(0)
      .at_most(1 << 24)
      .free_on_resume();
  section
      .key("window_stride", window_stride,
           "Tasks of your own: a window begins at every k-th step. XLand's loader takes n_transit / 2.")
      .unit("steps")
      .at_least(1);
  section
      .key(
          "window_margin", window_margin,
          "Tasks of your own: steps at both ends of each history in which no window lies. With 1 each window "
          "has a step before it, and windows are those of XLand's and Vintix's loaders.")
      .unit("steps")
      .at_least(0);
  section
      .key("last_fraction", last_fraction,
           "Tasks of your own: only windows that begin in this last part of a history; 1: all.")
      .above(0)
      .at_most(1);
  section.key(
      "sequence_packing", sequence_packing,
      "Tasks of your own, with loss_positions: all: histories that are too short for a window are laid "
      "end to end in rows of n_transit steps, once, by best fit, as TRL and NeMo pack sequences. None "
      "reads another, and each step of theirs is a target once an epoch. Without it they are left out.");
  section.key("task_weights", task_weights,
              {{"windows", TaskWeights::kWindows}, {"tasks", TaskWeights::kTasks}},
              "Tasks of your own: whether each window is drawn once an epoch, or each task equally often, "
              "however many windows it has.");
  section.key("normalize_observations", normalize_observations,
              "Tasks of your own whose observations are a Box: by mean and standard deviation of each task, "
              "over all of its steps, which are read once at the start.");
  section
      .key("reward_scale", reward_scale,
           "Tasks of your own: rewards are multiplied by this, and by a task's own scale: its attribute "
           "reward-scale, or reward_scale in Vintix's list.")
      .above(0);
  section
      .key("eval_windows", eval_windows,
           "Tasks of your own: the held-out loss is measured on at most this many windows, which are spread "
           "evenly over those of the held-out tasks.")
      .unit("windows")
      .at_least(1);
}

void DataOptions::take_all(bool steps_given, bool streams_given) {
  if (!steps_given) train_source_timesteps = kAllThereAre;
  if (!streams_given) train_n_stream = kAllThereAre;
}

}  // namespace adtrain
