#include "run/OutOfMemory.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "base/Nvml.h"
#include "memory/MemoryMeter.h"
#include "run/MemoryEstimate.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

constexpr const char* kFindsWhatFits = "train_batch_size: auto_batch_size finds what fits by trials";

/// libtorch's message without its figures of the same memory, which follow the request: "CUDA out of memory.
/// Tried to allocate 20.00 GiB".
std::string request_of(std::string message) {
  const size_t figures = message.find(". GPU ");
  return message.substr(0, figures);
}

/// The smallest number of parts, all alike, of which each is at most `fits`; `found` itself is one of them.
int64_t parts_that_fit(int64_t found, int64_t fits) {
  int64_t parts = 2;
  while (found % parts != 0 || found / parts > fits) ++parts;
  return parts;
}

/// "shard_optimizer: true, " and "recompute: block, ", each where it lets a sequence fit that does not fit
/// without.
std::string settings_that_fit(const RunConfig& config, const kernels::DeviceTraits& gpu, int64_t world_size,
                              int64_t usable) {
  RunConfig sharded = config, recomputed = config;
  sharded.distributed.shard_optimizer = true;
  recomputed.model.recompute = Recompute::kBlock;
  const auto fits = [&](const RunConfig& changed) {
    return MemoryEstimate(changed, gpu, world_size).largest_batch(usable) >= 1;
  };
  std::string settings;
  if (!config.distributed.shard_optimizer && world_size > 1 && fits(sharded))
    settings += "shard_optimizer: true, ";
  if (config.model.recompute != Recompute::kBlock && fits(recomputed)) settings += "recompute: block, ";
  return settings;
}

/// What to change on a GPU, with numbers, so that the run that goes on is the same run.
std::string advice_for_gpu(const RunConfig& config, const Ranks& ranks, const RankMemory& memory) {
  const TrainingOptions& options = config.training;
  const at::Device device = ranks.device.device;
  const int64_t world_size = ranks.communicator->world_size(), found = options.micro_batch(world_size);
  const MemoryEstimate estimate(config, kernels::DeviceTraits::of(device), world_size);
  const int64_t total = MemoryMeter(device, std::nullopt, 1).now().total;
  // What is there beside this run's memory: other processes, and CUDA's context more than the estimate has.
  const int64_t others = std::max<int64_t>(0, memory.split.other - estimate.split(1).other);
  const auto usable =
      static_cast<int64_t>(options.batch_size_safety_margin * static_cast<double>(total - others));
  const int64_t largest = estimate.largest_batch(usable);
  if (found == 1 || largest < 1) {
    return fmt::format(
        "not even one sequence fits: take {}a smaller model or n_transit{}, and ask adtrain estimate",
        settings_that_fit(config, kernels::DeviceTraits::of(device), world_size, usable),
        options.compute_type(device) == at::kFloat ? ", or mixed_precision: bf16" : "");
  }
  const int64_t parts = parts_that_fit(found, std::min(largest, found - 1));
  const int64_t accumulation = parts * options.gradient_accumulation_steps;
  const std::string change = options.global_batch_size
                                 ? fmt::format("set gradient_accumulation_steps: {}", accumulation)
                                 : fmt::format("set train_batch_size: {} and gradient_accumulation_steps: {}",
                                               found / parts, accumulation);
  return fmt::format(
      "by the estimate {} sequences a micro-batch fit (found {}): {}, which keeps the global batch; or "
      "start a new run, for which {}",
      std::min(largest, found - 1), found, change, kFindsWhatFits);
}

/// A sentence about other processes on this rank's GPU; empty where there are none.
std::string others_on(const at::Device& device, const MemorySplit& split) {
  constexpr int64_t kMostOfOneProcess = 2'000'000'000;  // CUDA's context, the kernels' code
  const std::optional<GpuState> gpu = Nvml().visible_gpu(device.index());
  const std::string others = gpu ? other_processes(*gpu, getpid()).text() : "";
  if (!others.empty()) return fmt::format(" Also on this GPU: {}.", others);
  if (split.other < kMostOfOneProcess) return "";
  return " Most of \"other\" belongs to other processes, which nvidia-smi shows on the host.";
}

std::string text_of(const ErrorMeaning& meaning, const RunConfig& config, const Ranks& ranks,
                    const RankMemory& memory) {
  const at::Device device = ranks.device.device;
  const std::string held = fmt::format("{} in use at the most; {} now: {}.", gigabytes(memory.peak),
                                       gigabytes(memory.current), text_of(memory.split));
  if (device.is_cpu()) {
    return fmt::format("{}. {} What to do: {}. A micro-batch has {} sequences; for a new run {}",
                       meaning.error, held, meaning.advice,
                       config.training.micro_batch(ranks.communicator->world_size()), kFindsWhatFits);
  }
  const std::string advice =
      config.model.is_plugin() ? meaning.advice : advice_for_gpu(config, ranks, memory);
  return fmt::format("{}. {}{} What to do: {}; then --resume", request_of(meaning.error), held,
                     others_on(device, memory.split), advice);
}

}  // namespace

void explain_out_of_memory(const std::exception& error, const RunConfig& config, const Ranks& ranks,
                           const std::function<RankMemory()>& memory) {
  const bool of_host_beside_gpu = ranks.device.device.is_cuda() && is_out_of_host_memory(error);
  const bool explained = dynamic_cast<const Error*>(&error) != nullptr;
  if (!is_out_of_memory(error) || of_host_beside_gpu || explained) return;
  std::string text;
  try {
    text = text_of(meaning_of(error), config, ranks, memory());
  } catch (const std::exception&) {
    return;  // the first error says more than one of the explanation
  }
  throw Error(ExitCode::kOutOfMemory, text);
}

}  // namespace adtrain
