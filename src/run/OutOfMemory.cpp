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

/// libtorch's message without its figures of the same memory, which follow the request: "CUDA out of memory.
/// Tried to allocate 20.00 GiB".
std::string request_of(std::string message) {
  const size_t figures = message.find(". GPU ");
  return message.substr(0, figures);
}

/// What to change, with numbers.
std::string advice(const RunConfig& config, const Ranks& ranks, const RankMemory& memory) {
  const TrainingOptions& options = config.training;
  const int64_t world_size = ranks.communicator->world_size(), found = options.micro_batch(world_size);
  const std::string found_by_trials = "train_batch_size: auto_batch_size finds what fits by trials";
  if (!ranks.device.device.is_cuda() || config.model.is_plugin()) {
    return fmt::format("lower train_batch_size ({} sequences a micro-batch now); {}", found, found_by_trials);
  }
  const auto gpu = kernels::DeviceTraits::of(ranks.device.device);
  const MemoryEstimate estimate(config, gpu, world_size);
  const MemoryReading device = MemoryMeter(ranks.device.device, std::nullopt, 1).now();
  // What is there beside this run's memory: other processes, and CUDA's context more than the estimate has.
  const int64_t others = std::max<int64_t>(0, memory.split.other - estimate.split(1).other);
  const auto usable =
      static_cast<int64_t>(options.batch_size_safety_margin * static_cast<double>(device.total - others));
  const int64_t fits = std::min(estimate.largest_batch(usable), found - 1);
  if (fits < 1) {
    return fmt::format(
        "by the estimate not even one sequence fits: take a smaller model or n_transit, or mixed_precision: "
        "bf16 ({} now), and ask adtrain estimate",
        options.compute_type(ranks.device.device) == at::kFloat ? "fp32" : "16 bits");
  }
  const std::string same_global_batch =
      options.global_batch_size
          ? fmt::format(
                "gradient_accumulation_steps: {} holds global_batch_size ({}) with smaller micro-batches",
                options.gradient_accumulation_steps * 2, *options.global_batch_size)
          : fmt::format("set train_batch_size: {}", fits);
  return fmt::format("by the estimate {} sequences a micro-batch fit (found {}): {}; {}", fits, found,
                     same_global_batch, found_by_trials);
}

/// A sentence about other processes on this rank's GPU; empty where there are none.
std::string others_on(const at::Device& device, const MemorySplit& split) {
  constexpr int64_t kMostOfOneProcess = 2'000'000'000;  // CUDA's context, the kernels' code
  if (!device.is_cuda()) return "";
  const std::optional<GpuState> gpu = Nvml().visible_gpu(device.index());
  const std::string others = gpu ? other_processes(*gpu, getpid()).text() : "";
  if (!others.empty()) return fmt::format(" Also on this GPU: {}.", others);
  if (split.other < kMostOfOneProcess) return "";
  return " Most of \"other\" belongs to other processes, which nvidia-smi shows on the host.";
}

}  // namespace

Error out_of_memory_in_training(const std::exception& error, const RunConfig& config, const Ranks& ranks,
                                const RankMemory& memory) {
  return {ExitCode::kOutOfMemory,
          fmt::format("{}. {} in use: {}.{} What to do: {}; then --resume",
                      request_of(meaning_of(error).error), gigabytes(memory.current), text_of(memory.split),
                      others_on(ranks.device.device, memory.split), advice(config, ranks, memory))};
}

}  // namespace adtrain
