#include "run/RunOptions.h"

namespace adtrain {

void RunOptions::declare(Section& section) {
  section.key("run_name", run_name,
              "Folder of the run below runs_dir; null names it MODEL-ENV-seedN, N being env_split_seed.");
  section.key("runs_dir", runs_dir, "Folder that holds all runs.");
  section.key("device", device,
              {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
              "What ranks, and the collection, compute on; auto takes GPUs where the machine has them.");
  section
      .key("cpu_threads", cpu_threads,
           "Threads of each rank for arithmetic on the CPU; null shares the cores that the launcher granted "
           "among the "
           "ranks of a host.")
      .unit("threads")
      .at_least(1);
}

}  // namespace adtrain
