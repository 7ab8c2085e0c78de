// One rank of the training benchmark, alone or under torchrun or mpirun, one GPU a rank:
//
//   benchmark_step CONFIG [--set key=value …] [--steps 200] [--peak-tflops 989.5]
//
// Trains the configured model on random histories and prints, on rank 0, one line of JSON. README.md explains
// the figures.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cxxopts.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "benchmark/ForwardFlops.h"
#include "benchmark/StepClock.h"
#include "benchmark/TimedTraining.h"
#include "cli/Command.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"

namespace adtrain {
namespace {

/// Before these, the step is not yet captured and the GPU's clocks have not risen.
constexpr int64_t kWarmUpSteps = 50;
constexpr double kDenseBf16TflopsOfH200 = 989.5;

constexpr const char* kMfuFormula =
    "3 x forward FLOPs / (ms_median x peak_tflops); forward: matrix products of the blocks, causal attention "
    "counted in half, the last block after its attention only where the loss reads it";

struct Request {
  std::string config;
  std::vector<std::string> overrides;
  int64_t steps;
  double peak_tflops;
};

cxxopts::Options declared_options() {
  cxxopts::Options options("benchmark_step", "Times optimizer steps of adtrain on one GPU a rank");
  options.custom_help("[options]").positional_help("config.yaml");
  cxxopts::OptionAdder add = options.add_options();
  declare_overrides(add);
  add("steps", "timed optimizer steps", cxxopts::value<int64_t>()->default_value("200"));
  add("peak-tflops", "what mfu is a share of, in TFLOP/s a GPU",
      cxxopts::value<double>()->default_value(fmt::format("{}", kDenseBf16TflopsOfH200)));
  add("h,help", "show this help");
  options.add_options("arguments")("target", "", cxxopts::value<std::string>());
  options.parse_positional({"target"});
  return options;
}

Request checked_request(const cxxopts::ParseResult& arguments) {
  Request request;
  request.config = target_of(arguments, "a configuration file, such as tests/benchmark/guide.yaml");
  request.overrides = overrides_of(arguments);
  request.steps = arguments["steps"].as<int64_t>();
  request.peak_tflops = arguments["peak-tflops"].as<double>();
  if (request.steps < 1) {
    throw ConfigError(fmt::format("--steps: found {}; expected at least 1", request.steps));
  }
  if (!(request.peak_tflops > 0)) {
    throw ConfigError(fmt::format("--peak-tflops: found {}; expected more than 0", request.peak_tflops));
  }
  return request;
}

/// What is read on each rank, and of which the greatest over ranks is shown: a run is as fast as its slowest.
struct RankFigures {
  double ms_median;
  double ms_p99;
  double exposed_communication_share;
  double data_wait_share;
  double allocated_gib;
  double reserved_gib;
};

RankFigures greatest_over_ranks(const RankFigures& mine, Communicator& communicator) {
  at::Tensor figures = at::tensor({mine.ms_median, mine.ms_p99, mine.exposed_communication_share,
                                   mine.data_wait_share, mine.allocated_gib, mine.reserved_gib},
                                  at::kDouble);
  communicator.all_reduce(figures, ReduceOp::kMax);
  const auto* greatest = figures.const_data_ptr<double>();
  return {greatest[0], greatest[1], greatest[2], greatest[3], greatest[4], greatest[5]};
}

/// Highest of the run so far, in GiB.
double peak_gib(const c10::CachingDeviceAllocator::StatArray& bytes) {
  constexpr double kGib = 1 << 30;
  return static_cast<double>(bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak) /
         kGib;
}

RankFigures measure(TimedTraining& training, int64_t steps, at::Device device) {
  training.take_steps(kWarmUpSteps);
  const TimedTraining::Times times = training.time_steps(steps);
  RankFigures figures{};
  figures.ms_median = quantile(times.milliseconds, 0.5);
  figures.ms_p99 = quantile(times.milliseconds, 0.99);
  figures.data_wait_share = times.data_wait_seconds / times.seconds;
  figures.exposed_communication_share = 1e3 * training.measure_exposed_communication() / figures.ms_median;
  const auto memory = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  figures.allocated_gib = peak_gib(memory.allocated_bytes);
  figures.reserved_gib = peak_gib(memory.reserved_bytes);
  return figures;
}

std::string description_of(const ModelOptions& model, LossPositions positions) {
  const auto block = [&] {
    switch (model.block()) {
      case TransformerBlock::kGpt2:
        return "GPT-2";
      case TransformerBlock::kPostNorm:
        return "post-norm";
      default:
        return "pre-norm";
    }
  };
  const std::string window = model.compressed() ? fmt::format("regions of {}", model.compress_interval)
                                                : fmt::format("n_transit {}", model.n_transit);
  return fmt::format("{}, width {}, {} layers, {} heads, {}, loss {}, dropout {}", block(), model.tf_n_embd,
                     model.tf_n_layer, model.tf_n_head, window,
                     positions == LossPositions::kAll ? "at all positions" : "at the last position",
                     model.tf_dropout);
}

std::string precision_of(const TrainingOptions& training) {
  switch (training.mixed_precision) {
    case Precision::kFloat16:
      return "fp16";
    case Precision::kBFloat16:
      return "bf16";
    default:
      return training.tf32 ? "fp32, products in tf32" : "fp32";
  }
}

/// Share of the peak that the model's own arithmetic reaches, 0 … 1.
double model_flops_utilization(const RunConfig& config, const BatchShare& share, double ms_a_step,
                               double peak_tflops) {
  const double forward = forward_flops(config.model, config.training.loss_positions) *
                         static_cast<double>(share.micro_batch * share.accumulation);
  return 3 * forward / (1e-3 * ms_a_step * 1e12 * peak_tflops);
}

/// To six decimals: what is after them is noise.
double rounded(double value) {
  return std::round(1e6 * value) / 1e6;
}

nlohmann::ordered_json report(const Request& request, const RunConfig& config, const Ranks& ranks,
                              TimedTraining& training, const RankFigures& figures, double loss) {
  const BatchShare& share = training.share();
  const double sequences_per_second = 1e3 * static_cast<double>(share.global_batch()) / figures.ms_median;
  return {
      {"program", "adtrain"},
      {"model", description_of(config.model, config.training.loss_positions)},
      {"gpu", ranks.device.name},
      {"communication", ranks.communicator->backend()},
      {"ranks", share.world_size},
      {"micro_batch", share.micro_batch},
      {"accumulation", share.accumulation},
      {"global_batch", share.global_batch()},
      {"precision", precision_of(config.training)},
      {"execution", training.captured() ? "captured" : "eager"},
      {"batches", training.batches().description()},
      {"steps", request.steps},
      {"ms_median", rounded(figures.ms_median)},
      {"ms_p99", rounded(figures.ms_p99)},
      {"sequences_per_second_per_gpu", rounded(sequences_per_second / static_cast<double>(share.world_size))},
      {"sequences_per_second", rounded(sequences_per_second)},
      {"mfu", rounded(model_flops_utilization(config, share, figures.ms_median, request.peak_tflops))},
      {"mfu_formula", kMfuFormula},
      {"peak_tflops", request.peak_tflops},
      {"exposed_communication_share", rounded(figures.exposed_communication_share)},
      {"data_wait_share", rounded(figures.data_wait_share)},
      {"peak_memory_gib", rounded(figures.allocated_gib)},
      {"peak_reserved_gib", rounded(figures.reserved_gib)},
      {"parameters", training.model().parameters().count()},
      {"loss", rounded(loss)}};
}

ExitCode benchmark_as_rank(const Request& request, const RunConfig& config, const Ranks& ranks) {
  if (!ranks.device.device.is_cuda()) {
    throw EnvironmentError(fmt::format(
        "found no GPU for each rank ({}); expected one of its own for every rank, since the benchmark times "
        "GPUs: see nvidia-smi and CUDA_VISIBLE_DEVICES, start fewer ranks, and leave device at auto",
        ranks.device.notice.empty() ? "none is visible, or device: cpu is set" : ranks.device.notice));
  }
  at::globalContext().setAllowTF32CuBLAS(config.training.tf32);
  at::globalContext().setDeterministicAlgorithms(config.training.deterministic, /*warn_only=*/false);

  TimedTraining training(config, *ranks.communicator);
  const RankFigures figures =
      greatest_over_ranks(measure(training, request.steps, ranks.device.device), *ranks.communicator);
  const double loss = training.checked_loss();
  if (ranks.communicator->is_root()) {
    fmt::print("{}\n", report(request, config, ranks, training, figures, loss).dump());
  }
  return ExitCode::kDone;
}

ExitCode run(int argc, const char* const* argv) {
  cxxopts::Options options = declared_options();
  cxxopts::ParseResult arguments;
  try {
    arguments = options.parse(argc, argv);
  } catch (const cxxopts::exceptions::exception& error) {
    throw ConfigError(fmt::format("{}; see benchmark_step --help", error.what()));
  }
  if (arguments.count("help") > 0) {
    fmt::print("{}", options.help({""}));
    return ExitCode::kDone;
  }
  const Request request = checked_request(arguments);
  std::vector<std::string> notices;
  const RunConfig config = RunConfig::load(request.config, request.overrides, notices);
  return as_one_of_the_ranks(config,
                             [&](const Ranks& ranks) { return benchmark_as_rank(request, config, ranks); });
}

}  // namespace
}  // namespace adtrain

int main(int argc, char** argv) {
  try {
    return static_cast<int>(adtrain::run(argc, argv));
  } catch (const std::exception& error) {
    return static_cast<int>(adtrain::report_failure(error, "benchmark_step"));
  }
}
