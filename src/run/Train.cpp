#include "run/Train.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Fault.h"
#include "base/File.h"
#include "base/Text.h"
#include "checkpoint/QuantisedTensors.h"
#include "collectives/Agreement.h"
#include "collectives/StopRequest.h"
#include "data/BatchAssembler.h"
#include "launch/LaunchContext.h"
#include "model/AlgorithmDistillation.h"
#include "model/FrozenParameters.h"
#include "run/BatchSizes.h"
#include "run/BatchSizesOfRun.h"
#include "run/EvaluationWorkers.h"
#include "run/FamilyReturns.h"
#include "run/InitialWeights.h"
#include "run/LoadedNetwork.h"
#include "run/OutOfMemory.h"
#include "run/OverwrittenRun.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "run/RunLifecycle.h"
#include "run/RunRecord.h"
#include "run/TrainingInputs.h"
#include "run/TrainingResult.h"
#include "run/own/OwnHistories.h"
#include "run/own/OwnReturns.h"
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

std::string optimizer_text(const RunConfig& config, int64_t world_size) {
  if (!config.distributed.shard_optimizer || world_size == 1) return "AdamW";
  return fmt::format("AdamW, its moments divided among {} ranks", world_size);
}

std::string device_text(const Ranks& ranks) {
  if (ranks.device.device.is_cuda()) return fmt::format("{}, one a rank", ranks.device.name);
  return fmt::format("CPU, {} thread{} a rank", ranks.cpu_threads, ranks.cpu_threads == 1 ? "" : "s");
}

std::string parameters_text(const ParameterBuffer& parameters) {
  const std::string all = grouped(parameters.count());
  if (parameters.frozen_names().empty()) return all;
  return fmt::format("{}, {} of them train; frozen: {}", all, grouped(parameters.trained_count()),
                     abridged(join(frozen_modules(parameters), ", "), 300));
}

/// Accelerate's word for how many processes of which kind there are.
const char* distributed_type(const Ranks& ranks) {
  if (ranks.context.world_size == 1) return "NO";
  return ranks.device.device.is_cuda() ? "MULTI_GPU" : "MULTI_CPU";
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

/// Whether steps on a GPU could be captured, but for what they compute again.
bool recompute_forbids_capture(const RunConfig& config, const Ranks& ranks,
                               const AlgorithmDistillation& model) {
  return ranks.device.device.is_cuda() && config.training.cuda_graph != CudaGraphUse::kOff &&
         model.recomputation(config.training.loss_positions).rewinds_generator();
}

/// Throws where the user requires captured steps and cannot have them with `recompute`.
void check_recompute(const RunConfig& config, const Ranks& ranks, const AlgorithmDistillation& model) {
  if (config.training.cuda_graph != CudaGraphUse::kOn || !recompute_forbids_capture(config, ranks, model))
    return;
  throw ConfigError(
      "cuda_graph: found on with a recompute that draws the dropout of libtorch's attention again, which no "
      "captured step can; expected auto or off, tf_attn_dropout 0, recompute: none or mlp, or kernels that "
      "adtrain validate shows for mixed_precision: bf16");
}

void print_banner(Console& console, const RunConfig& config, const Ranks& ranks, AlgorithmDistillation& model,
                  const BatchShare& share, const BatchAssembler& windows) {
  const LaunchContext& context = ranks.context;
  console.banner(
      "adtrain: Algorithm Distillation, " + config.environment.env,
      {{"run", config.folder().root.string()},
       {"processes", fmt::format("{} ({} on this host)", context.world_size, context.local_world_size)},
       {"launcher", fmt::format("{}: {}", launcher_name(context.launcher), context.evidence)},
       {"communication", ranks.communicator->backend()},
       {"device", device_text(ranks)},
       {"model", config.model.architecture()},
       {"mixed precision", precision_text(config.training, ranks.device.device)},
       {"optimizer", optimizer_text(config, context.world_size)},
       {"transformer blocks", model.plan(config.training.loss_positions).summary()},
       {"gradient accumulation", fmt::format("{} micro-batches a step", share.accumulation)},
       {"batch per rank", fmt::format("{} sequences a micro-batch", share.micro_batch)},
       {"global batch", fmt::format("{} sequences an optimizer step", share.global_batch())},
       {"parameters", parameters_text(model.parameters())},
       {"training data", windows.description()},
       {"steps", grouped(config.training.train_timesteps)}});
  // As programs under Accelerate print it, for those who look for these lines.
  console.info(fmt::format("Number of processes: {}", context.world_size));
  console.info(fmt::format("Distributed type: {}", distributed_type(ranks)));
  console.info(fmt::format("Device: {}", ranks.device.device.str()));
}

/// Sets the batch sizes that the configuration leaves open: to those of the run that is continued, else to
/// what trials find.
void set_batch_sizes(RunConfig& config, const Ranks& ranks, const RunLifecycle& life,
                     const TrainingInputs& inputs, Console& console) {
  const std::string decided = text_of_root(*ranks.communicator, life.batch_sizes().to_json().dump());
  BatchSizesOfRun::from(nlohmann::json::parse(decided)).put_into(config.training);
  find_batch_sizes(config, ranks, inputs, console, config.folder().batch_sizes());
}

/// A run that an export or an import has made has no optimizer's state to go on with.
void refuse_to_continue_quantised(const RunConfig& config, const RunLifecycle& life) {
  if (life.resumed() == nullptr || !hold_quantised(life.resumed()->model)) return;
  throw CheckpointError(
      fmt::format("--resume: the weights of {} are quantised, and training goes on with weights as they are; "
                  "expected the run that they were quantised from",
                  config.folder().root.string()));
}

/// Gives a new run the weights that `init_from` names, on rank 0, from which all ranks get theirs.
void begin_with_weights(const RunConfig& config, RunLifecycle& life, AlgorithmDistillation& model,
                        Communicator& communicator, Console& console) {
  if (!config.training.init_from || !communicator.is_root()) return;
  if (life.resumed() != nullptr) {
    console.info("init_from is not read again: the run goes on with its own weights");
    return;
  }
  Activity::of_this_process().begin("reading the initial weights");
  const InitialWeights weights(config, model.parameters());
  weights.put_into(model.parameters());
  for (const std::string& line : weights.report()) console.info(line);
  life.begins_with(weights.record());
}

/// What the run that is continued says of own tasks; "" for a new one. Collective.
std::string known_tasks(const RunConfig& config, const RunLifecycle& life, Communicator& communicator) {
  const std::filesystem::path file = config.folder().tasks();
  const bool is_there = life.resumed() != nullptr && std::filesystem::exists(file);
  return text_of_root(communicator, is_there ? read_file(file) : "");
}

/// A run that is continued has its weights from its checkpoint, which all ranks get from rank 0. Collective.
TrainingInputs::Weights weights_of(const RunLifecycle& life, Communicator& communicator) {
  const bool continues = !text_of_root(communicator, life.resumed() != nullptr ? "continues" : "").empty();
  return continues ? TrainingInputs::Weights::kFollow : TrainingInputs::Weights::kFirst;
}

/// Null where return_interval asks for no measurement.
std::unique_ptr<ReturnMeter> return_meter(const RunConfig& config, const Ranks& ranks,
                                          const TrainingInputs& inputs, Console& console) {
  if (config.training.returns.interval == 0) return nullptr;
  Communicator& communicator = *ranks.communicator;
  if (!config.environment.has_own_tasks())
    return std::make_unique<FamilyReturns>(config, inputs.model(), communicator);
  const TaskScaling tasks =
      TaskScaling::from_json(inputs.histories().tasks(), config.folder().tasks().string());
  return std::make_unique<OwnReturns>(
      config, inputs.model(), communicator, OwnTasksOfRun(tasks),
      notices_of_rank(ranks.context.rank, communicator.is_root() ? &console : nullptr));
}

/// Rank 0's `stop_after` counts, as its --resume and --overwrite do: ranks that stop after different steps
/// would wait for each other. Where memory is refused, the error says what held it.
Trainer::End run(Trainer& trainer, const StopRequest& stop, int64_t stop_after, const RunConfig& config,
                 const Ranks& ranks) {
  const int64_t last_step = std::stoll(text_of_root(*ranks.communicator, std::to_string(stop_after)));
  try {
    return trainer.run(stop, last_step);
  } catch (const std::exception& error) {
    explain_out_of_memory(error, config, ranks, [&] { return trainer.memory(); });
    throw;
  }
}

ExitCode train_as_rank(const TrainRequest& request, RunConfig config, const std::vector<std::string>& notices,
                       const Ranks& ranks, TrainingResult& result) {
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root(), request.json ? stderr : stdout);
  for (const std::string& notice : notices) console.notice(notice);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);
  if (Fault::of_this_process().is_planned()) {
    console.warn("ADTRAIN_FAULT is set: something will break on purpose; unset it to train");
  }

  Activity::of_this_process().begin("opening histories");
  std::shared_ptr<const OwnHistories> own = open_own_histories(config);
  std::optional<StopRequest> stop;  // ends after the life, which gives the folder back
  RunLifecycle life(config, {request.resume, request.overwrite, request.allowed_changes}, ranks, console);
  refuse_to_continue_quantised(config, life);
  Activity::of_this_process().begin("loading histories and model");
  const TrainingInputs inputs(config, ranks, console,
                              {std::move(own), known_tasks(config, life, communicator)},
                              weights_of(life, communicator));
  const TrainingHistories& histories = inputs.histories();
  if (!histories.missing_tasks().empty()) console.notice(histories.missing_tasks());
  life.check_histories(histories.identity());
  check_fused_kernels(config, inputs.model());
  check_recompute(config, ranks, inputs.model());
  begin_with_weights(config, life, inputs.model(), communicator, console);
  set_batch_sizes(config, ranks, life, inputs, console);
  const RunFolder folder = config.folder();
  TrainingLog log(console,
                  communicator.is_root() ? std::optional<TrainingLog::Paths>(
                                               {folder.metrics(), folder.tensorboard(), folder.loss_curve()})
                                         : std::nullopt,
                  hyperparameters_of(config));
  const std::unique_ptr<ReturnMeter> returns = return_meter(config, ranks, inputs, console);
  Trainer trainer(config.training, config.distributed.reducer(), config.data,
                  {.model = inputs.model(),
                   .communicator = communicator,
                   .training_windows = inputs.windows(),
                   .held_out_windows = inputs.held_out_windows(),
                   .keeper = life,
                   .log = log,
                   .origin = life.origin(),
                   .communication_bytes = ranks.communication_bytes,
                   .profiles = folder.profile(),
                   .returns = returns.get()});
  print_banner(console, config, ranks, inputs.model(), trainer.share(), inputs.windows());

  if (config.distributed.shard_optimizer && communicator.world_size() == 1)
    console.notice("shard_optimizer has no effect: of a single rank there is nothing to shard");
  if (ranks.device.device.is_cuda() && config.training.cuda_graph != CudaGraphUse::kOff &&
      inputs.model().shape().spaces.size() > 1) {
    console.notice(
        "the rows of a step are of several groups of spaces, other ones in each step: steps run eagerly, as "
        "no CUDA graph holds them");
  }
  if (recompute_forbids_capture(config, ranks, inputs.model())) {
    console.notice(
        "recompute draws the dropout of libtorch's attention again in the backward pass, which no CUDA graph "
        "can: steps run eagerly");
  }

  trainer.start_from(life.resumed());
  // From before its folder says that it trains until it says how that ended, a run that is asked to stop
  // saves.
  stop.emplace();
  communicator.barrier();  // and so do all ranks
  life.claim();
  if (communicator.is_root() && !histories.tasks().empty())
    write_file_atomically(config.folder().tasks(), histories.tasks());
  result.claimed();
  const Trainer::End how = run(trainer, *stop, request.stop_after, config, ranks);
  const int64_t step = trainer.progress().step;
  const ExitCode code = life.end(how, step);
  if (communicator.is_root()) result.ended(how, code, step);
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

namespace {

/// Whether this process is the one that prints what concerns all ranks.
bool is_first_rank() {
  try {
    return LaunchContext::detect().is_root();
  } catch (const EnvironmentError&) {
    return true;  // it cannot be known
  }
}

ExitCode train(const TrainRequest& request, TrainingResult& result) {
  Fault::of_this_process();  // reports a malformed value before anything starts
  if (request.stop_after < 1) {
    throw ConfigError(fmt::format("--stop-after: found {}; expected a step, 1 at least", request.stop_after));
  }
  check_key_names(request.allowed_changes, "--allow-changes");
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  refuse_to_train_quantised(config);
  refuse_run_within_run(config.folder(), config.place_of("run_name"));
  if (config.placement.device_map) {
    notices.push_back(
        "device_map is for adtrain score and adtrain evaluate: in training every rank holds the whole model "
        "on a device of its own");
  }
  result.is_of(config);
  return as_one_of_the_ranks(
      config, [&](const Ranks& ranks) { return train_as_rank(request, config, notices, ranks, result); },
      config.folder().failure(), [&](const Failure& first) { result.failed(first); },
      /*continues_by_resume=*/true);
}

}  // namespace

ExitCode train(const TrainRequest& request) {
  TrainingResult result(request.json);
  try {
    return train(request, result);
  } catch (const std::exception& error) {
    if (is_first_rank()) result.failed(error);
    throw;
  }
}

}  // namespace adtrain
