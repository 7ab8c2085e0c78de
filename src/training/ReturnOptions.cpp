#include "training/ReturnOptions.h"

namespace adtrain {

void ReturnOptions::declare(Section& section) {
  section
      .key(
          "return_interval", interval,
          "Between two measurements of the in-context return, on held-out and on training tasks, with frozen "
          "weights; also after the last step. Each measured step is saved as a checkpoint, whose evaluation "
          "with the same settings gives the same figure. 0 for none.")
      .unit("optimizer steps")
      .at_least(0)
      .at_most(1e12)
      .free_on_resume()
      .also_called("gen_interval");
  section
      .key("return_episodes", episodes,
           "return_interval: episodes that a task is learnt for in context, as eval_episodes. The figure is "
           "the mean of the last ten.")
      .unit("episodes")
      .at_least(1)
      .at_most(1e6)
      .free_on_resume();
  section
      .key("return_repeats", repeats,
           "return_interval: how often each task is learnt anew, as eval_repeats; more of them make the "
           "figure less noisy.")
      .unit("repeats")
      .at_least(1)
      .at_most(1e6)
      .free_on_resume();
  section
      .key("return_task_limit", task_limit,
           "return_interval: at most so many tasks of each side of the split, as eval_task_limit; null for "
           "all.")
      .unit("tasks")
      .at_least(1)
      .free_on_resume();
}

}  // namespace adtrain
