#include "run/own/HeldTasks.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "base/HostMemory.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "collectives/LongWork.h"
#include "collectives/NodeMemory.h"
#include "data/ColumnCheck.h"
#include "data/ColumnWindows.h"
#include "run/Histories.h"
#include "run/SpokenProgress.h"

namespace adtrain {
namespace {

int64_t over_ranks(Communicator& communicator, int64_t value, ReduceOp op) {
  at::Tensor tensor = at::full({1}, value, at::kLong);
  communicator.all_reduce(tensor, op);
  return tensor.item<int64_t>();
}

std::string bytes_text(size_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

/// What windows of training and of the held-out loss are cut from: of trained tasks first, as a GPU takes the
/// steps of these alone.
std::vector<HeldHistories::Part> parts_of(const RunConfig& config, const OwnHistories& histories) {
  constexpr auto kAll = std::numeric_limits<int64_t>::max();
  const auto most = [](int64_t setting) { return setting == kAllThereAre ? kAll : setting; };
  const int64_t steps = most(config.data.train_source_timesteps), streams = most(config.data.train_n_stream);
  std::vector<HeldHistories::Part> parts;
  for (const size_t task : histories.trained()) parts.push_back({task, static_cast<size_t>(streams), steps});
  if (config.training.eval_interval > 0) {
    for (const size_t task : histories.held_out()) parts.push_back({task, 1, steps});
  }
  return parts;
}

/// Why GPUs are not to hold histories of so many bytes, or "". Collective.
std::string reason_against_gpus(size_t bytes, const RunConfig& config, const Ranks& ranks,
                                const OwnHistories& histories) {
  if (!ranks.device.device.is_cuda()) return "ranks are on the CPU";
  if (config.data.histories_on_gpu == HistoriesOnGpu::kOff) return "histories_on_gpu is off";
  const std::string cannot =
      ColumnWindows::why_not_on_gpu(histories.source(), histories.trained(), histories.spaces().size());
  const bool must = config.data.histories_on_gpu == HistoriesOnGpu::kOn;
  if (must && !cannot.empty()) {
    throw ConfigError(
        fmt::format("histories_on_gpu: found on, and a GPU cannot cut batches of the histories in {}: {}; "
                    "expected auto or off",
                    config.histories(), cannot));
  }
  if (!cannot.empty()) return cannot;
  size_t free_bytes = 0, total_bytes = 0;
  const bool known = cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess;
  const int64_t most = over_ranks(*ranks.communicator,
                                  known ? most_on_gpu(static_cast<int64_t>(free_bytes)) : 0, ReduceOp::kMin);
  if (must || static_cast<int64_t>(bytes) < most) return "";
  return fmt::format("they take {}, and a quarter of a GPU's free memory is {}", bytes_text(bytes),
                     bytes_text(static_cast<size_t>(most)));
}

/// Reads histories into the memory of the ranks' machines. Collective. Returns what some rank has found
/// wrong.
std::string fill(HeldHistories& held, const SharedBytes& memory, const RunConfig& config, const Ranks& ranks,
                 const OwnHistories& histories, Console& console) {
  const ColumnCheck check(histories.source(), histories.name());
  const auto wrong_in = [&](size_t task, size_t history, int64_t first, const HistoryWindow& steps) {
    return check.wrong(histories.spaces()[histories.group_of(task)], task, history, first, steps);
  };
  const auto threads = static_cast<size_t>(std::max<int64_t>(1, config.data.num_workers));
  std::string wrong;
  LongWork(*ranks.communicator, SpokenProgress(console, "reading histories into memory", "histories"))
      .run(static_cast<int64_t>(memory.own_pieces(held.held_histories())), [&](std::atomic<int64_t>& done) {
        wrong = held.load(memory, threads, wrong_in, [&done] { ++done; });
      });
  memory.close();
  const std::vector<std::string> all = gather_texts(*ranks.communicator, wrong);
  const auto found = std::ranges::find_if_not(all, &std::string::empty);
  return found == all.end() ? "" : *found;
}

}  // namespace

HeldTasks HeldTasks::of(const RunConfig& config, const Ranks& ranks, const OwnHistories& histories,
                        Console& console) {
  Communicator& communicator = *ranks.communicator;
  auto held = std::make_unique<HeldHistories>(histories.source(), parts_of(config, histories),
                                              ColumnWindows::kinds());
  const size_t bytes = held->bytes();
  std::string content;
  for (const std::filesystem::path& file : histories.source().files()) content += content_of(file) + "\n";
  NodeMemory node(communicator, content);
  const auto sharers =
      static_cast<size_t>(over_ranks(communicator, static_cast<int64_t>(node.sharers()), ReduceOp::kMin));
  const size_t cache = static_cast<size_t>(config.data.history_cache) << 20;
  const int64_t available = over_ranks(communicator, available_host_memory(), ReduceOp::kMin);
  HeldTasks tasks{nullptr, reason_against_gpus(bytes, config, ranks, histories)};
  const bool must = tasks.why_not_on_gpu.empty() && config.data.histories_on_gpu == HistoriesOnGpu::kOn;
  const bool there_is_room = must || static_cast<int64_t>(bytes) <= available / 2;
  const auto in_place = [&](const std::string& why) {
    console.info(fmt::format("histories are read in place: {}", why));
    return HeldTasks{nullptr, ""};
  };
  if (bytes > sharers * cache && !tasks.why_not_on_gpu.empty()) {
    return in_place(fmt::format(
        "in memory they would take {}, more than history_cache ({} of each of {} rank{} "
        "of a machine){}",
        bytes_text(bytes), bytes_text(cache), sharers, sharers == 1 ? "" : "s",
        ranks.device.device.is_cuda() ? fmt::format(", and no GPU holds them: {}", tasks.why_not_on_gpu)
                                      : ""));
  }
  if (!there_is_room) {
    return in_place(
        fmt::format("in memory they would take {}, and the machine with the least has {} available, "
                    "of which they may take half",
                    bytes_text(bytes), bytes_text(static_cast<size_t>(available))));
  }
  const SharedBytes memory = node.allocate(bytes);
  if (!node.why_not_shared().empty()) {
    const bool each_may_have_them = must || bytes <= cache;
    if (!each_may_have_them) {
      return in_place(fmt::format("the ranks of a machine cannot share memory: {}", node.why_not_shared()));
    }
    console.notice(fmt::format("each rank has its own copy of the histories: {}", node.why_not_shared()));
  }
  const std::string wrong = fill(*held, memory, config, ranks, histories, console);
  if (!wrong.empty()) {
    if (must) throw DataError(wrong);
    if (tasks.why_not_on_gpu.empty()) tasks.why_not_on_gpu = wrong;
  }
  console.info(fmt::format(
      "histories: {} in memory{}; {}", bytes_text(bytes),
      memory.sharers > 1 ? fmt::format(", one copy for the {} ranks of a machine", memory.sharers) : "",
      tasks.why_not_on_gpu.empty()    ? "each GPU holds them and cuts its batches itself"
      : ranks.device.device.is_cuda() ? fmt::format("batches are cut on the CPU: {}", tasks.why_not_on_gpu)
                                      : "batches are cut from there"));
  tasks.held = std::move(held);
  return tasks;
}

}  // namespace adtrain
