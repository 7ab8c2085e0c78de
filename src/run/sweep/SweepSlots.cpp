#include "run/sweep/SweepSlots.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Error.h"
#include "base/Gpu.h"
#include "base/Nvml.h"
#include "base/Text.h"
#include "base/Words.h"

namespace adtrain {

SweepSlots SweepSlots::of(const std::vector<SweepGpu>& gpus, int64_t cores, int64_t ranks, int64_t runs,
                          std::optional<int64_t> jobs) {
  SweepSlots slots;
  if (gpus.empty()) {
    const int64_t count = std::clamp<int64_t>(jobs.value_or(cores / ranks), 1, std::max<int64_t>(runs, 1));
    slots.devices.assign(static_cast<size_t>(count), "");
    slots.threads = std::max<int64_t>(1, cores / (count * ranks));
    return slots;
  }
  if (ranks > std::ssize(gpus)) {
    throw ConfigError(
        fmt::format("--nproc: found {} ranks for each run, which take a GPU each; expected at most {}, as "
                    "many GPUs as are visible",
                    ranks, gpus.size()));
  }
  std::vector<std::string> free, busy;
  for (const SweepGpu& gpu : gpus) (gpu.busy ? busy : free).push_back(gpu.id);
  if (std::ssize(free) < ranks) {
    free.clear();
    busy.clear();
    for (const SweepGpu& gpu : gpus) free.push_back(gpu.id);
  }
  slots.left_out = busy;
  int64_t count = std::min(std::ssize(free) / ranks, std::max<int64_t>(runs, 1));
  if (jobs) count = std::clamp<int64_t>(*jobs, 1, count);
  for (int64_t slot = 0; slot < count; ++slot)
    slots.devices.push_back(join({free.begin() + slot * ranks, free.begin() + (slot + 1) * ranks}, ","));
  return slots;
}

std::vector<std::string> environment_showing(const std::string& gpus) {
  const std::string visible = "CUDA_VISIBLE_DEVICES=";
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(visible)) variables.emplace_back(*variable);
  }
  variables.push_back(visible + gpus);
  return variables;
}

std::vector<SweepGpu> gpus_of_this_process() {
  const int count = visible_gpu_count();
  if (count == 0) return {};
  std::vector<std::string> ids;
  if (const char* const chosen = std::getenv("CUDA_VISIBLE_DEVICES")) {
    ids = between_commas(chosen);
  }
  const Nvml nvml;
  std::vector<SweepGpu> gpus;
  for (int index = 0; index < count; ++index) {
    const std::string id =
        static_cast<size_t>(index) < ids.size() ? ids[static_cast<size_t>(index)] : std::to_string(index);
    const std::optional<GpuState> state = nvml.visible_gpu(index);
    gpus.push_back({id, state && state->processes && !state->processes->empty()});
  }
  return gpus;
}

}  // namespace adtrain
