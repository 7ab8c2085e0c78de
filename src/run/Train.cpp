#include "run/Train.h"

#include <optional>

#include <ATen/Context.h>
#include <fmt/format.h>

#include "base/Fault.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "data/BatchAssembler.h"
#include "data/HistorySet.h"
#include "environments/TaskFamily.h"
#include "environments/TaskSplit.h"
#include "launch/LaunchContext.h"
#include "model/AlgorithmDistillation.h"
#include "run/Histories.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/RunLifecycle.h"
#include "telemetry/Console.h"
#include "training/Trainer.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

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

std::string device_text(const Ranks& ranks) {
  if (ranks.device.device.is_cuda()) return fmt::format("{}, one a rank", ranks.device.name);
  return fmt::format("CPU, {} thread{} a rank", ranks.cpu_threads, ranks.cpu_threads == 1 ? "" : "s");
}

/// Throws where the user requires fused kernels and there are none.
void check_fused_kernels(const RunConfig& config, const AlgorithmDistillation& model) {
  if (config.model.fused_kernels != FusedKernels::kOn) return;
  const auto& why_not = model.plan(config.training.loss_positions).why_no_whole_blocks();
  if (!why_not) return;
  throw ConfigError(fmt::format(
      "fused_kernels is on, and there are no fused kernels for this run: {}. Set fused_kernels: auto to "
      "train with library kernels",
      *why_not));
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
       {"transformer blocks", model.plan(config.training.loss_positions).summary()},
       {"gradient accumulation", fmt::format("{} micro-batches a step", share.accumulation)},
       {"batch per rank", fmt::format("{} sequences a micro-batch", share.micro_batch)},
       {"global batch", fmt::format("{} sequences an optimizer step", share.global_batch())},
       {"parameters", grouped(model.parameters().count())},
       {"training data",
        fmt::format("{} windows of {} histories, {} in memory", grouped(windows.samples()),
                    grouped(histories.histories()), human_bytes(static_cast<double>(histories.bytes())))},
       {"steps", grouped(config.training.train_timesteps)}});
}

ExitCode train_as_rank(const TrainRequest& request, const RunConfig& config,
                       const std::vector<std::string>& notices, const Ranks& ranks) {
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root());
  for (const std::string& notice : notices) console.notice(notice);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  if (Fault::of_this_process().is_planned()) {
    console.warn("ADTRAIN_FAULT is set: something will break on purpose; unset it to train");
  }
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);

  RunLifecycle life(config, {request.resume, request.overwrite, request.allowed_changes}, ranks, console);
  Activity::of_this_process().begin("loading histories and model");
  const TaskSplit split = TaskSplit::of(config.environment, TaskFamily::of(config.environment).task_count());
  const HistorySet histories = load_histories(config, split.train, config.data.train_n_stream);
  const BatchAssembler windows(histories, config.window_shape(config.training.loss_positions));
  const bool holds_out = !split.test.empty() && config.training.eval_interval > 0;
  const HistorySet held_out =
      load_histories(config, holds_out ? split.test : std::vector<int64_t>{split.train.front()}, 1);
  check_same(communicator, fmt::format("the digest of the histories in {}", config.history_file().string()),
             histories.digest() + held_out.digest());
  life.check_histories(identity_of(histories));
  const BatchAssembler held_out_windows(held_out, config.window_shape(LossPositions::kLast));

  const ModelShape shape = {config.environment.grid_size, config.environment.num_actions};
  const auto model =
      AlgorithmDistillation::create(config.model, shape, static_cast<uint64_t>(config.training.seed));
  model->parameters().to(ranks.device.device, config.training.compute_type(ranks.device.device));
  check_fused_kernels(config, *model);
  const RunFolder folder = config.folder();
  TrainingLog log(console, communicator.is_root()
                               ? std::optional<TrainingLog::Paths>(
                                     {folder.metrics(), folder.tensorboard(), folder.loss_curve()})
                               : std::nullopt);
  Trainer trainer(config.training, config.distributed.reducer(), config.data,
                  {.model = *model,
                   .communicator = communicator,
                   .training_windows = windows,
                   .held_out_windows = holds_out ? &held_out_windows : nullptr,
                   .keeper = life,
                   .log = log,
                   .origin = life.origin()});
  print_banner(console, config, ranks, *model, trainer.share(), windows, histories);

  trainer.start_from(life.resumed());
  life.claim();
  const Trainer::End how = trainer.run(request.stop_after);
  const int64_t step = trainer.progress().step;
  const ExitCode code = life.end(how, step);
  if (how == Trainer::End::kStopped) {
    console.info(
        fmt::format("stopped after step {} of {}, which is saved; the same command with --resume continues",
                    step, config.training.train_timesteps));
  } else {
    console.info(
        fmt::format("done: {} steps, the last one is saved; loss curve {}.png; next: adtrain evaluate {}",
                    step, folder.loss_curve().string(), folder.root.string()));
  }
  return code;
}

}  // namespace

ExitCode train(const TrainRequest& request) {
  Fault::of_this_process();  // reports a malformed value before anything starts
  if (request.stop_after < 1) {
    throw ConfigError(fmt::format("--stop-after: found {}; expected a step, 1 at least", request.stop_after));
  }
  check_key_names(request.allowed_changes);
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  return as_one_of_the_ranks(
      config, [&](const Ranks& ranks) { return train_as_rank(request, config, notices, ranks); });
}

}  // namespace adtrain
