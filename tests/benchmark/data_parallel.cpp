// One rank of the comparison of adtrain::DataParallel with DistributedDataParallel, alone or under torchrun
// or mpirun:
//
//   benchmark_data_parallel [--mode eager|captured] [--optimizer torch|flat] [--batch 4096] [--width 768]
//                           [--layers 12] [--steps 100] [--bucket-megabytes 25]
//
// Trains a plain libtorch network on a fixed random batch and prints, on rank 0, one line of JSON.
// peer_data_parallel.py is the same in PyTorch: network, first values, batches, optimizer. README.md explains
// the figures.

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cxxopts.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "adtrain/adtrain.h"
#include "base/Error.h"
#include "base/Gpu.h"
#include "benchmark/StepClock.h"

namespace adtrain {
namespace {

constexpr double kLearningRate = 3e-4;
constexpr uint64_t kSeed = 0;  ///< of the network; of rank r's batch the r + 1st after it

struct Request {
  bool captured;
  bool flat;      ///< FlatAdamW, else torch::optim::AdamW
  int64_t batch;  ///< rows a rank
  int64_t width;
  int64_t layers;
  int64_t steps;
  int64_t warm_up;
  int64_t bucket_megabytes;
};

/// x + narrow(gelu(wide(norm(x)))), as the feed-forward half of a pre-norm transformer.
class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(int64_t width)
      : norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        wide_(register_module("wide", torch::nn::Linear(width, 4 * width))),
        narrow_(register_module("narrow", torch::nn::Linear(4 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) { return x + narrow_(torch::gelu(wide_(norm_(x)))); }

 private:
  torch::nn::LayerNorm norm_;
  torch::nn::Linear wide_, narrow_;
};
TORCH_MODULE(Block);

torch::nn::Sequential make_network(const Request& request, at::Device device) {
  torch::manual_seed(kSeed);
  torch::nn::Sequential network;
  for (int64_t layer = 0; layer < request.layers; ++layer) network->push_back(Block(request.width));
  network->to(device);
  return network;
}

/// Network, gradients and optimizer of one rank, and the halves of their step. Collective as DataParallel is.
class Training {
 public:
  Training(const Request& request, ProcessGroup& group)
      : network_(make_network(request, group.device())),
        parallel_(*network_, group, {.bucket_bytes = request.bucket_megabytes << 20}),
        optimizer_(make_optimizer(request, parallel_)) {
    torch::manual_seed(kSeed + 1 + static_cast<uint64_t>(group.rank()));
    inputs_ = torch::randn({request.batch, request.width}, group.device());
    targets_ = torch::sin(2 * inputs_);
  }

  /// From here on compute_gradients() replays a CUDA graph. Eager steps have gone before, in which libraries
  /// set themselves up.
  void capture() {
    c10::cuda::device_synchronize();
    at::cuda::CUDAGraph& graph = graph_.emplace();
    graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    compute_eagerly();
    graph.capture_end();
  }

  /// Zeroing, forward and backward pass, and the sum over ranks.
  void compute_gradients() {
    if (graph_) {
      graph_->replay();
    } else {
      compute_eagerly();
    }
  }

  void update() { optimizer_->step(); }

  /// Of this rank's batch, in the latest step. Waits for the device.
  double loss() const { return loss_.item<double>(); }

  int64_t parameters() const {
    int64_t count = 0;
    for (const at::Tensor& parameter : parallel_.main_parameters()) count += parameter.numel();
    return count;
  }

 private:
  static std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Request& request,
                                                                 DataParallel& parallel) {
    const torch::optim::AdamWOptions options(kLearningRate);
    if (request.flat) return std::make_unique<FlatAdamW>(parallel, options);
    return std::make_unique<torch::optim::AdamW>(parallel.main_parameters(), options);
  }

  void compute_eagerly() {
    const at::Tensor loss = torch::mse_loss(network_->forward(inputs_), targets_);
    parallel_.backward(loss);
    loss_ = loss.detach();
  }

  torch::nn::Sequential network_;
  DataParallel parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  at::Tensor inputs_, targets_, loss_;
  std::optional<at::cuda::CUDAGraph> graph_;  ///< after all that it works on
};

struct Milliseconds {
  double median;
  double p99;
};

/// Of the slowest rank.
Milliseconds time_steps(const Request& request, ProcessGroup& group, const std::function<void()>& step) {
  for (int64_t i = 0; i < request.warm_up; ++i) step();
  group.synchronize();
  group.barrier();
  StepClock clock(group.device());
  clock.mark();
  for (int64_t i = 0; i < request.steps; ++i) {
    step();
    clock.mark();
  }
  group.synchronize();
  const std::vector<double> mine = clock.milliseconds();
  at::Tensor figures = at::tensor({quantile(mine, 0.5), quantile(mine, 0.99)}, at::kDouble);
  group.all_reduce(figures, Reduction::kMax);
  return {.median = figures[0].item<double>(), .p99 = figures[1].item<double>()};
}

/// The mean over ranks. Throws NonFiniteError where it is not a number: the time of such steps means nothing.
double checked_loss(const Training& training, ProcessGroup& group) {
  at::Tensor sum = at::tensor({training.loss()}, at::kDouble);
  group.all_reduce(sum);
  const double loss = sum.item<double>() / static_cast<double>(group.world_size());
  if (std::isfinite(loss)) return loss;
  throw NonFiniteError(fmt::format("the loss is {}; expected a finite number: take fewer --steps", loss));
}

/// To six decimals: what is after them is noise.
double rounded(double value) {
  return std::round(1e6 * value) / 1e6;
}

int benchmark_as_rank(const Request& request, ProcessGroup& group) {
  const at::Device device = group.device();
  if (request.captured && !device.is_cuda()) {
    throw EnvironmentError(
        "found no GPU for each rank; expected one of its own for every rank, as --mode captured makes CUDA "
        "graphs: start fewer ranks, or take --mode eager");
  }
  at::globalContext().setAllowTF32CuBLAS(true);
  group.begin_phase("benchmark");
  Training training(request, group);
  if (request.captured) {
    for (int64_t i = 0; i < request.warm_up; ++i) training.compute_gradients();
    training.capture();
  }
  const Milliseconds gradients = time_steps(request, group, [&] { training.compute_gradients(); });
  const Milliseconds whole = time_steps(request, group, [&] {
    training.compute_gradients();
    training.update();
  });
  const double loss = checked_loss(training, group);
  if (!group.is_root()) return kExitDone;
  const double rows_per_second = 1e3 * static_cast<double>(request.batch) / whole.median;
  const nlohmann::ordered_json report = {
      {"program", "adtrain DataParallel"},
      {"mode", request.captured ? "captured" : "eager"},
      {"device", device.is_cuda() ? visible_gpu(device.index()).name : "CPU"},
      {"communication", group.backend()},
      {"ranks", group.world_size()},
      {"batch_per_rank", request.batch},
      {"model", fmt::format("residual MLP, width {}, {} layers", request.width, request.layers)},
      {"parameters", training.parameters()},
      {"precision", device.is_cuda() ? "fp32, products in tf32" : "fp32"},
      {"optimizer", request.flat ? "adtrain::FlatAdamW" : "torch::optim::AdamW"},
      {"warm_up", request.warm_up},
      {"steps", request.steps},
      {"gradients_ms_median", rounded(gradients.median)},
      {"gradients_ms_p99", rounded(gradients.p99)},
      {"ms_median", rounded(whole.median)},
      {"ms_p99", rounded(whole.p99)},
      {"rows_per_second_per_rank", rounded(rows_per_second)},
      {"rows_per_second", rounded(rows_per_second * static_cast<double>(group.world_size()))},
      {"loss", rounded(loss)}};
  fmt::print("{}\n", report.dump());
  return kExitDone;
}

cxxopts::Options declared_options() {
  cxxopts::Options options("benchmark_data_parallel", "Times adtrain::DataParallel on a plain network");
  cxxopts::OptionAdder add = options.add_options();
  const auto whole_number = [&](const char* name, const char* text, const char* otherwise) {
    add(name, text, cxxopts::value<int64_t>()->default_value(otherwise));
  };
  add("mode", "eager, or captured: gradients by a CUDA graph",
      cxxopts::value<std::string>()->default_value("eager"));
  add("optimizer", "torch: torch::optim::AdamW; flat: adtrain::FlatAdamW",
      cxxopts::value<std::string>()->default_value("torch"));
  whole_number("batch", "rows a rank", "4096");
  whole_number("width", "of the network", "768");
  whole_number("layers", "of the network", "12");
  whole_number("steps", "timed steps, with the optimizer and without", "100");
  whole_number("warm-up", "steps before each timing and before a capture", "30");
  whole_number("bucket-megabytes", "of gradients that are summed over ranks at once", "25");
  add("h,help", "show this help");
  return options;
}

Request checked_request(const cxxopts::ParseResult& arguments) {
  const auto is_second = [&](const char* name, const char* first, const char* second) {
    const auto value = arguments[name].as<std::string>();
    if (value == first || value == second) return value == second;
    throw ConfigError(fmt::format("--{}: found {}; expected {} or {}", name, value, first, second));
  };
  const auto at_least = [&](const char* name, int64_t least) {
    const auto value = arguments[name].as<int64_t>();
    if (value >= least) return value;
    throw ConfigError(fmt::format("--{}: found {}; expected at least {}", name, value, least));
  };
  return {.captured = is_second("mode", "eager", "captured"),
          .flat = is_second("optimizer", "torch", "flat"),
          .batch = at_least("batch", 1),
          .width = at_least("width", 1),
          .layers = at_least("layers", 1),
          .steps = at_least("steps", 1),
          .warm_up = at_least("warm-up", 1),
          .bucket_megabytes = at_least("bucket-megabytes", 1)};
}

int run(int argc, const char* const* argv) {
  cxxopts::Options options = declared_options();
  cxxopts::ParseResult arguments;
  try {
    arguments = options.parse(argc, argv);
  } catch (const cxxopts::exceptions::exception& error) {
    throw ConfigError(fmt::format("{}; see benchmark_data_parallel --help", error.what()));
  }
  if (arguments.count("help") > 0) {
    fmt::print("{}", options.help());
    return kExitDone;
  }
  const Request request = checked_request(arguments);
  return run_ranks([&](ProcessGroup& group) { return benchmark_as_rank(request, group); });
}

}  // namespace
}  // namespace adtrain

int main(int argc, char** argv) {
  try {
    return adtrain::run(argc, argv);
  } catch (const std::exception& error) {
    return static_cast<int>(adtrain::report_failure(error, "benchmark_data_parallel"));
  }
}
