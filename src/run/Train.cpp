#include "run/Train.h"

#include <optional>

#include <ATen/Context.h>
#include <fmt/format.h>

#include "base/File.h"
#include "base/Text.h"
#include "data/BatchAssembler.h"
#include "data/HistorySet.h"
#include "distributed/Activity.h"
#include "distributed/LaunchContext.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "model/AlgorithmDistillation.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "training/Trainer.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

/// Loads the histories of one side of the split.
HistorySet load_histories(const RunConfig& config, const std::vector<int64_t>& tasks, int64_t streams) {
  const fs::path file = config.history_file();
  if (!fs::exists(file)) {
    throw DataError(fmt::format(
        "{} does not exist; expected learning histories there: run `adtrain collect` with the same "
        "configuration, or point traj_dir at the folder that holds them",
        file.string()));
  }
  return HistorySet::load(file, {.tasks = tasks,
                                 .steps = config.data.train_source_timesteps,
                                 .streams = streams,
                                 .bounds = {config.environment.grid_size, config.environment.num_actions}});
}

/// Before anything is loaded: nothing of an earlier run is lost unasked.
void refuse_to_overwrite(const TrainRequest& request, const RunFolder& folder,
                         const CheckpointStore& checkpoints) {
  if (request.resume || request.overwrite || checkpoints.empty()) return;
  throw ConfigError(
      fmt::format("{} holds a run with checkpoints already; continue it with --resume, start it anew with "
                  "--overwrite, or choose another --set run_name=…",
                  folder.root.string()));
}

/// When all that training needs is there, and not before: a start that fails leaves an earlier run as it was.
void claim_folder(const TrainRequest& request, const RunConfig& config) {
  const RunFolder folder = config.folder();
  if (request.overwrite && !request.resume) {
    fs::remove_all(folder.checkpoints());
    fs::remove_all(folder.tensorboard());
    fs::remove(folder.metrics());
  }
  fs::remove(folder.failure());
  fs::remove(folder.requeue());
  write_file_atomically(folder.config(), config.resolved_yaml());
}

/// What the launcher is to hear of a run that stopped on request. torchrun takes any code but 0 for a
/// failure, and srun may end slower ranks because of the first code that is not 0; the marker says it in any
/// case.
ExitCode requeue_code(const LaunchContext& context, const RunFolder& folder) {
  if (context.is_root()) write_file_atomically(folder.requeue(), "");
  return context.launcher == Launcher::kTorchrun ? ExitCode::kDone : ExitCode::kRequeue;
}

std::string precision_text(const TrainingOptions& options, at::Device device) {
  switch (options.compute_type(device)) {
    case at::kHalf:
      return "fp16 with loss scaling; fp32 master weights";
    case at::kBFloat16:
      return "bf16; fp32 master weights";
    default:
      if (device.is_cuda()) return options.tf32 ? "fp32, matrix products in tf32" : "fp32";
      return options.mixed_precision == Precision::kFloat32
                 ? "fp32"
                 : "fp32 (mixed_precision needs a GPU; ranks are on the CPU)";
  }
}

std::string ranks_text(int64_t count) {
  return fmt::format("{} rank{}", count, count == 1 ? "" : "s");
}

std::string device_text(const Ranks& ranks) {
  if (ranks.device.device.is_cuda()) return fmt::format("{}, one a rank", ranks.device.name);
  return fmt::format("CPU, {} thread{} a rank", ranks.cpu_threads, ranks.cpu_threads == 1 ? "" : "s");
}

std::string blocks_text(const RunConfig& config, const AlgorithmDistillation& model) {
  const auto why_not = model.why_not_fused(config.training.loss_positions);
  if (!why_not) return "fused kernels, one operation a block";
  if (!model.has_halves()) return fmt::format("library kernels (fused ones: {})", *why_not);
  const auto why_no_attention = model.why_no_own_attention(config.training.loss_positions);
  return fmt::format("library products, kernels of our own between them, {} (fused ones: {})",
                     why_no_attention ? fmt::format("libtorch's attention (own one: {})", *why_no_attention)
                                      : "attention among them",
                     *why_not);
}

/// Where the user insists on fused kernels and there are none.
void check_fused_kernels(const RunConfig& config, const AlgorithmDistillation& model) {
  if (config.model.fused_kernels != FusedKernels::kOn) return;
  const auto why_not = model.why_not_fused(config.training.loss_positions);
  if (!why_not) return;
  throw ConfigError(fmt::format(
      "fused_kernels is on, and there are no fused kernels for this run: {}. Set fused_kernels: auto to "
      "train with library kernels",
      *why_not));
}

std::string resumed_text(const Snapshot& snapshot, int64_t world_size) {
  const int64_t saved_by = snapshot.state.value("world_size", world_size);
  return fmt::format(
      "resuming behind step {}{}", snapshot.step,
      saved_by == world_size
          ? ""
          : fmt::format(", saved by a run of {} where this one has {}; the global batches stay the same",
                        ranks_text(saved_by), ranks_text(world_size)));
}

void print_banner(Console& console, const RunConfig& config, const Ranks& ranks, AlgorithmDistillation& model,
                  const BatchShare& share, const BatchAssembler& windows, const HistorySet& histories) {
  const LaunchContext& context = ranks.context;
  console.banner(
      "adtrain: Algorithm Distillation, " + config.environment.env,
      {{"run", config.folder().root.string()},
       {"processes", fmt::format("{} ({} on this host)", context.world_size, context.local_world_size)},
       {"launcher", fmt::format("{}: {}", launcher_name(context.launcher), context.evidence)},
       {"communication", ranks.communicator->backend()},
       {"device", device_text(ranks)},
       {"mixed precision", precision_text(config.training, ranks.device.device)},
       {"transformer blocks", blocks_text(config, model)},
       {"gradient accumulation", fmt::format("{} micro-batches a step", share.accumulation)},
       {"batch per rank", fmt::format("{} sequences a micro-batch", share.micro_batch)},
       {"global batch", fmt::format("{} sequences an optimizer step", share.global_batch())},
       {"parameters", grouped(model.parameters().count())},
       {"training data",
        fmt::format("{} windows of {} histories, {} in memory", grouped(windows.samples()),
                    grouped(histories.histories()), human_bytes(static_cast<double>(histories.bytes())))},
       {"steps", grouped(config.training.train_timesteps)}});
}

ExitCode train_as_rank(TrainRequest request, const RunConfig& config, const std::vector<std::string>& notices,
                       const Ranks& ranks) {
  Activity::of_this_process().begin("loading histories and model");
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root());
  for (const std::string& notice : notices) console.notice(notice);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);

  const RunFolder folder = config.folder();
  CheckpointStore checkpoints(folder.checkpoints(), config.training.keep_checkpoints);
  const bool restarted = ranks.context.restart_count > 0;
  if (restarted) {
    request.resume = !checkpoints.empty();
    request.overwrite = true;
    console.notice(
        fmt::format("restart {} by {}", ranks.context.restart_count, launcher_name(ranks.context.launcher)));
  }
  if (communicator.is_root()) refuse_to_overwrite(request, folder, checkpoints);

  const TaskSplit split = TaskSplit::of(config.environment, TaskFamily::of(config.environment).task_count());
  const HistorySet histories = load_histories(config, split.train, config.data.train_n_stream);
  const BatchAssembler windows(histories, config.window_shape(config.training.loss_positions));
  const bool holds_out = !split.test.empty() && config.training.eval_interval > 0;
  const HistorySet held_out =
      load_histories(config, holds_out ? split.test : std::vector<int64_t>{split.train.front()}, 1);
  const BatchAssembler held_out_windows(held_out, config.window_shape(LossPositions::kLast));

  const ModelShape shape = {config.environment.grid_size, config.environment.num_actions};
  const auto model =
      AlgorithmDistillation::create(config.model, shape, static_cast<uint64_t>(config.training.seed));
  model->parameters().to(ranks.device.device, config.training.compute_type(ranks.device.device));
  check_fused_kernels(config, *model);
  TrainingLog log(console, communicator.is_root()
                               ? std::optional<TrainingLog::Paths>(
                                     {folder.metrics(), folder.tensorboard(), folder.loss_curve()})
                               : std::nullopt);
  Trainer trainer(config.training, config.distributed.reducer(), config.data,
                  {.model = *model,
                   .communicator = communicator,
                   .training_windows = windows,
                   .held_out_windows = holds_out ? &held_out_windows : nullptr,
                   .checkpoints = checkpoints,
                   .log = log,
                   .origin = {{"configuration", config.resolved_yaml()},
                              {"configuration_hash", config.fingerprint()},
                              {"world_size", communicator.world_size()}}});
  print_banner(console, config, ranks, *model, trainer.share(), windows, histories);

  std::optional<CheckpointStore::Found> found;
  if (request.resume && communicator.is_root()) {
    found = checkpoints.newest();
    for (const std::string& reason : found->passed_over) console.warn("passed over a checkpoint: " + reason);
  }
  trainer.start_from(found ? &found->snapshot : nullptr);
  if (communicator.is_root()) claim_folder(request, config);
  if (found) console.info(resumed_text(found->snapshot, communicator.world_size()));

  if (trainer.run(request.stop_after) == Trainer::End::kStopped) {
    console.info(fmt::format("stopped behind step {} of {}; the same command with --resume continues",
                             trainer.progress().step, config.training.train_timesteps));
    return requeue_code(ranks.context, folder);
  }
  console.info(fmt::format("done: {} steps; loss curve {}.png; next: adtrain evaluate {}",
                           trainer.progress().step, folder.loss_curve().string(), folder.root.string()));
  return ExitCode::kDone;
}

}  // namespace

ExitCode train(const TrainRequest& request) {
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  return as_one_of_the_ranks(
      config, [&](const Ranks& ranks) { return train_as_rank(request, config, notices, ranks); });
}

}  // namespace adtrain
