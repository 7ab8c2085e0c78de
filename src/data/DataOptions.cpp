#include "data/DataOptions.h"

namespace adtrain {

void DataOptions::declare(Section& section) {
  section
      .key("traj_dir", traj_dir,
           "Folder of the learning histories: `adtrain collect` writes there, training reads.")
      .free_on_resume();
  section
      .key("train_source_timesteps", train_source_timesteps,
           "Only this many first steps of each history are used, for training and the held-out loss.")
      .unit("steps")
      .at_least(2);
  section
      .key("train_n_stream", train_n_stream,
           "Streams of each training task that are used; held-out tasks use one.")
      .unit("streams")
      .at_least(1);
  section
      .key("episode_stride", episode_stride,
           "Keeps every k-th episode of a history (every phase is used), so that a context of the same "
           "length spans "
           "k times as much learning. 1 keeps all, as published.")
      .unit("episodes")
      .at_least(1);
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
           "into a quarter of its free memory. Without it num_workers threads feed it.")
      .free_on_resume();
}

}  // namespace adtrain
