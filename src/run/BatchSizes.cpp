#include "run/BatchSizes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Checksum.h"
#include "base/Fault.h"
#include "base/File.h"
#include "collectives/Agreement.h"
#include "memory/BatchSizeSearch.h"
#include "memory/MemoryMeter.h"
#include "telemetry/Chart.h"
#include "training/TrainingTrial.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kGigabyte = 1e9;

/// One of the batch sizes that may be left open.
struct OpenSize {
  const char* key;
  int64_t TrainingOptions::*size;
};
constexpr OpenSize kTraining = {"train_batch_size", &TrainingOptions::train_batch_size};
constexpr OpenSize kHeldOut = {"test_batch_size", &TrainingOptions::test_batch_size};

/// Everything that a decision depends on: one text for all ranks.
std::string conditions_of(const RunConfig& config, const Ranks& ranks, const MemoryMeter& meter,
                          const char* key) {
  RunConfig copy = config;
  // What has nothing to do with memory or time.
  copy.run = {};
  copy.training.lr = 1;
  copy.training.seed = 0;
  copy.training.train_timesteps = copy.training.summary_interval = copy.training.ckpt_interval = 1;
  copy.training.num_warmup_steps = 0;
  std::string devices;
  for (const std::string& device :
       gather_texts(*ranks.communicator, fmt::format("{} with {} bytes\n", meter.name(),
                                                     meter.device().is_cuda() ? meter.now().total : 0))) {
    devices += device;
  }
  return fmt::format("{} of\n{}\non\n{}", key, copy.resolved_yaml(), devices);
}

/// Memory and speed over the batch size.
void draw(const BatchSizeDecision& decision, int64_t world_size, const std::string& key,
          const fs::path& report) {
  std::vector<BatchSizeTrial> trials = decision.trials;
  std::erase_if(trials, [](const BatchSizeTrial& trial) { return trial.refused; });
  std::ranges::sort(trials, {}, &BatchSizeTrial::batch);
  Series memory{.name = "memory at the peak, % of the target", .x = {}, .y = {}, .band = {}};
  Series speed{.name = "sequences a second, % of the most", .x = {}, .y = {}, .band = {}};
  double most = 0;
  const auto rate = [world_size](const BatchSizeTrial& trial) {
    return trial.seconds > 0 ? static_cast<double>(trial.batch * world_size) / trial.seconds : 0;
  };
  for (const BatchSizeTrial& trial : trials) most = std::max(most, rate(trial));
  for (const BatchSizeTrial& trial : trials) {
    memory.x.push_back(static_cast<double>(trial.batch));
    memory.y.push_back(100 * static_cast<double>(trial.peak_bytes) / static_cast<double>(trial.target_bytes));
    if (rate(trial) <= 0) continue;
    speed.x.push_back(static_cast<double>(trial.batch));
    speed.y.push_back(100 * rate(trial) / most);
  }
  Chart chart;
  chart.title = fmt::format("{}: {} fits, {} is used", key, decision.largest, decision.batch);
  chart.x_label = "batch size of each rank, sequences";
  chart.y_label = "%";
  chart.from_zero = true;
  chart.series = {memory, speed};
  if (!trials.empty()) {
    const double target = static_cast<double>(trials.front().target_bytes) / kGigabyte;
    chart.references = {{fmt::format("{:.4g} GB", target), 100}};
  }
  for (const char* type : {".svg", ".png"}) chart.draw(report.string() + type);
}

/// The first operations over ranks make NCCL allocate its buffers, which are there beside every step.
void warm_up(Communicator& communicator, const ReducerOptions& reducer) {
  at::Tensor bucket = at::zeros({reducer.bucket_bytes / static_cast<int64_t>(sizeof(float))},
                                at::TensorOptions(communicator.device()).dtype(at::kFloat));
  communicator.all_reduce(bucket, ReduceOp::kSum);
  communicator.broadcast(bucket, 0);
  communicator.synchronize();
}

/// The searches of one run.
class Searches {
 public:
  Searches(RunConfig& config, const Ranks& ranks, const TrainingInputs& inputs, Console& console)
      : config_(config),
        ranks_(ranks),
        console_(console),
        meter_(ranks.device.device, config.training.cpu_memory_limit(), ranks.context.local_world_size),
        trial_(config.training, config.distributed.reducer(), config.data,
               {.model = inputs.model(),
                .training_windows = inputs.windows(),
                .held_out_windows = inputs.held_out_windows()}) {}

  /// The micro-batch of each rank.
  BatchSizeDecision find_training() {
    const TrainingOptions& options = config_.training;
    const int64_t held_out = options.test_batch_size == kAutoBatchSize ? 1 : options.test_batch_size;
    BatchSizeOptions search = search_options();
    search.divides = options.share_of_global_batch(world_size());
    return decide(kTraining, std::move(search), [&](int64_t batch) {
      const int64_t accumulation = search.divides ? *search.divides / std::min(batch, *search.divides)
                                                  : options.gradient_accumulation_steps;
      return trial_.take_steps(batch, accumulation, held_out);
    });
  }

  /// The rows of a forward pass of the held-out loss, beside training steps of the size that was found.
  BatchSizeDecision find_held_out() {
    const TrainingOptions& options = config_.training;
    const int64_t micro_batch = options.micro_batch(world_size());
    return decide(kHeldOut, search_options(), [&](int64_t batch) {
      return trial_.take_steps(micro_batch, options.gradient_accumulation_steps, batch);
    });
  }

 private:
  int64_t world_size() const { return ranks_.communicator->world_size(); }

  BatchSizeOptions search_options() const {
    const TrainingOptions& options = config_.training;
    BatchSizeOptions search;
    search.largest = options.batch_size_limit;
    search.safety_margin = options.batch_size_safety_margin;
    search.prefer = options.batch_size_prefer;
    search.log = [this](const std::string& sentence) { console_.info("  " + sentence); };
    return search;
  }

  BatchSizeDecision decide(const OpenSize& open, BatchSizeOptions options,
                           const std::function<double(int64_t)>& trial) {
    const std::string conditions = conditions_of(config_, ranks_, meter_, open.key);
    const fs::path cached =
        fs::path(config_.run.runs_dir) / "batch_sizes" / (checksum_text(conditions) + ".json");
    if (const auto known = known_decision(cached, conditions)) {
      console_.info(
          fmt::format("{}: {}, as found before for this model, these shapes and devices ({}; "
                      "batch_size_cache: false searches again)",
                      open.key, known->batch, cached.string()));
      return *known;
    }
    Activity& activity = Activity::of_this_process();
    console_.info(fmt::format("finding {} by trials of this run's own steps", open.key));
    BatchSizeSearch search(*ranks_.communicator, meter_, std::move(options));
    const BatchSizeDecision decision = search.run([&](int64_t batch) {
      activity.begin("finding the batch size");
      Fault::of_this_process().at_step(ranks_.communicator->rank(), batch);
      return trial(batch);
    });
    for (const std::string& line : table_of(decision, world_size())) console_.info("  " + line);
    if (ranks_.communicator->is_root() && config_.training.batch_size_cache) {
      fs::create_directories(cached.parent_path());
      write_file_atomically(cached, json{{"conditions", conditions},
                                         {"batch_size", decision.batch},
                                         {"largest_that_fits", decision.largest},
                                         {"fastest", decision.fastest}}
                                        .dump(2));
    }
    return decision;
  }

  /// What an earlier search has found in the same conditions; no trials are known then. Collective.
  std::optional<BatchSizeDecision> known_decision(const fs::path& cached, const std::string& conditions) {
    std::string text;
    if (ranks_.communicator->is_root() && config_.training.batch_size_cache && fs::exists(cached)) {
      const json found = json::parse(read_file(cached), nullptr, /*allow_exceptions=*/false);
      if (found.is_object() && found.value("conditions", "") == conditions &&
          found.value("batch_size", 0) > 0) {
        text = found.dump();
      }
    }
    text = text_of_root(*ranks_.communicator, text);
    if (text.empty()) return std::nullopt;
    const json found = json::parse(text);
    BatchSizeDecision decision{};
    decision.batch = found.at("batch_size");
    decision.largest = found.value("largest_that_fits", decision.batch);
    decision.fastest = found.value("fastest", decision.batch);
    return decision;
  }

  RunConfig& config_;
  const Ranks& ranks_;
  Console& console_;
  MemoryMeter meter_;
  TrainingTrial trial_;
};

}  // namespace

void find_batch_sizes(RunConfig& config, const Ranks& ranks, const TrainingInputs& inputs, Console& console,
                      const fs::path& report) {
  TrainingOptions& options = config.training;
  if (options.train_batch_size != kAutoBatchSize && options.test_batch_size != kAutoBatchSize) return;
  const int64_t world_size = ranks.communicator->world_size();
  warm_up(*ranks.communicator, config.distributed.reducer());
  json all = json::object();
  const auto keep = [&](const char* key, const BatchSizeDecision& decision) {
    all[key] = to_json(decision, world_size);
    if (!ranks.communicator->is_root() || decision.trials.empty()) return;
    draw(decision, world_size, key, report.string() + "." + key);
  };
  Searches searches(config, ranks, inputs, console);
  if (options.train_batch_size == kAutoBatchSize) {
    const BatchSizeDecision decision = searches.find_training();
    options.train_batch_size = decision.batch;
    if (const auto share = options.share_of_global_batch(world_size)) {
      options.gradient_accumulation_steps = *share / decision.batch;
      console.info(
          fmt::format("train_batch_size: gradient_accumulation_steps is {}, so that the global batch is {}",
                      options.gradient_accumulation_steps, *options.global_batch_size));
    }
    keep(kTraining.key, decision);
  }
  if (options.test_batch_size == kAutoBatchSize) {
    if (inputs.held_out_windows() == nullptr) {
      options.test_batch_size = 1;  // no held-out loss is measured
    } else {
      const BatchSizeDecision decision = searches.find_held_out();
      options.test_batch_size = decision.batch;
      keep(kHeldOut.key, decision);
    }
  }
  if (ranks.communicator->is_root()) write_file_atomically(report.string() + ".json", all.dump(2) + "\n");
}

}  // namespace adtrain
