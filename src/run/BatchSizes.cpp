#include "run/BatchSizes.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Checksum.h"
#include "base/Error.h"
#include "base/Fault.h"
#include "base/File.h"
#include "collectives/Agreement.h"
#include "memory/BatchSizeSearch.h"
#include "memory/MemoryMeter.h"
#include "run/EnvironmentReport.h"
#include "telemetry/Chart.h"
#include "training/TrainingTrial.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTraining = "train_batch_size";
constexpr const char* kHeldOut = "test_batch_size";

/// Everything that a decision depends on but for the memory that is free: one text for all ranks. Empty where
/// decisions are not remembered, as on a host that has another amount of memory available every time.
std::string conditions_of(const RunConfig& config, const Ranks& ranks, const MemoryMeter& meter,
                          const TrainingInputs& inputs, const char* key) {
  const bool same_memory = meter.device().is_cuda() || config.training.cpu_memory_limit();
  if (!config.training.batch_size_cache || !same_memory) return "";
  RunConfig copy = config;
  copy.run.run_name.reset();
  copy.run.runs_dir.clear();
  // What has nothing to do with memory or time.
  copy.training.lr = 1;
  copy.training.seed = 0;
  copy.training.train_timesteps = copy.training.summary_interval = copy.training.ckpt_interval = 1;
  copy.training.num_warmup_steps = 0;
  copy.training.profile = {};
  copy.training.init_from.reset();
  std::string devices;
  for (const std::string& device : gather_texts(
           *ranks.communicator, fmt::format("{} with {} bytes\n", meter.name(), meter.now().total))) {
    devices += device;
  }
  return fmt::format("{} of\n{}\n{} parameters, {}, {}\non\n{}", key, copy.resolved_yaml(),
                     inputs.model().parameters().count(), inputs.windows().description(), version_text(),
                     devices);
}

/// Memory and speed over the batch size.
void draw(const BatchSizeDecision& decision, const std::string& key, const fs::path& report) {
  std::vector<BatchSizeTrial> trials = decision.trials;
  std::erase_if(trials, [](const BatchSizeTrial& trial) { return trial.refused; });
  std::ranges::sort(trials, {}, &BatchSizeTrial::batch);
  Series memory{.name = "memory at the peak, % of the target", .x = {}, .y = {}, .band = {}};
  Series speed{.name = "sequences a second, % of the most", .x = {}, .y = {}, .band = {}};
  double most = 0;
  const auto rate = [](const BatchSizeTrial& trial) { return samples_per_second(trial, 1); };
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
    const double target = static_cast<double>(trials.front().target_bytes) / kBytesOfGigabyte;
    chart.references = {{fmt::format("{:.4g} GB", target), 100}};
  }
  for (const char* type : {".svg", ".png"}) chart.draw(report.string() + type);
}

/// Writes what a run can do without: a full disk is a warning. Returns whether it could.
bool write_for_people(Console& console, const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const std::exception& error) {
    console.warn(fmt::format("how the batch size was found is not written down: {}", error.what()));
    return false;
  }
}

/// The searches of one run.
class Searches {
 public:
  Searches(RunConfig& config, const Ranks& ranks, const TrainingInputs& inputs, Console& console)
      : config_(config),
        ranks_(ranks),
        inputs_(inputs),
        console_(console),
        meter_(ranks.device.device, config.training.cpu_memory_limit(), ranks.context.local_world_size),
        trial_(config.training, config.distributed.reducer(), config.data,
               {.model = inputs.model(),
                .training_windows = inputs.windows(),
                .held_out_windows = inputs.held_out_windows(),
                .rank = ranks.communicator->rank(),
                .world_size = ranks.communicator->world_size()}) {}

  /// The micro-batch of each rank.
  BatchSizeDecision find_training() {
    const TrainingOptions& options = config_.training;
    const int64_t held_out = options.test_batch_size == kAutoBatchSize ? 1 : options.test_batch_size;
    const std::optional<int64_t> share = options.share_of_global_batch(world_size());
    return decide(kTraining, share, [&](int64_t batch) {
      const int64_t accumulation = share ? *share / batch : options.gradient_accumulation_steps;
      return take_steps(batch, accumulation, held_out).micro_batch;
    });
  }

  /// The rows of a forward pass of the held-out loss, beside training steps of the size that was found.
  BatchSizeDecision find_held_out() {
    const TrainingOptions& options = config_.training;
    const int64_t micro_batch = options.micro_batch(world_size());
    return decide(kHeldOut, std::nullopt, [&](int64_t batch) {
      return take_steps(micro_batch, options.gradient_accumulation_steps, batch).held_out_batch;
    });
  }

 private:
  int64_t world_size() const { return ranks_.communicator->world_size(); }

  TrainingTrial::Seconds take_steps(int64_t batch, int64_t accumulation, int64_t held_out_batch) {
    return trial_.take_steps(batch, accumulation, held_out_batch, [this] { meter_.sample(); });
  }

  BatchSizeOptions search_options(const std::optional<int64_t>& divides) const {
    const TrainingOptions& options = config_.training;
    BatchSizeOptions search;
    search.largest = options.batch_size_limit;
    search.safety_margin = options.batch_size_safety_margin;
    search.prefer = options.batch_size_prefer;
    search.divides = divides;
    search.log = [this](const std::string& sentence) { console_.info("  " + sentence); };
    return search;
  }

  BatchSizeDecision decide(const char* key, const std::optional<int64_t>& divides,
                           const std::function<double(int64_t)>& seconds_of) {
    const auto trial = [&](int64_t batch) {
      Activity::of_this_process().begin("finding the batch size");
      Fault::of_this_process().at_step(ranks_.communicator->rank(), batch);
      return seconds_of(batch);
    };
    const std::string conditions = conditions_of(config_, ranks_, meter_, inputs_, key);
    const fs::path cached =
        fs::path(config_.run.runs_dir) / "batch_sizes" / (checksum_text(conditions) + ".json");
    console_.info(fmt::format("finding {} by trials of this run's own steps", key));
    BatchSizeSearch search(*ranks_.communicator, meter_, search_options(divides));
    const std::optional<BatchSizeDecision> known = known_decision(cached, conditions);
    const bool still_fits = known && search.still_fits(known->batch, trial);
    const BatchSizeDecision decision = still_fits ? *known : run(search, trial);
    Fault::of_this_process().at_step(ranks_.communicator->rank(), 0);  // training counts its steps from 1
    if (still_fits) {
      console_.info(
          fmt::format("  {} was found before for this model, these shapes and devices, and fits ({}; "
                      "batch_size_cache: false searches again)",
                      known->batch, cached.string()));
      return decision;
    }
    for (const std::string& line : table_of(decision, world_size())) console_.info("  " + line);
    if (!ranks_.communicator->is_root() || conditions.empty()) return decision;
    write_for_people(console_, [&] {
      json remembered = to_json(decision, world_size());
      remembered["conditions"] = conditions;
      fs::create_directories(cached.parent_path());
      write_file_atomically(cached, remembered.dump(2));
    });
    return decision;
  }

  /// The error of a search in which not even one sequence fits also names what else a trial takes.
  BatchSizeDecision run(BatchSizeSearch& search, const std::function<double(int64_t)>& trial) {
    try {
      return search.run(trial);
    } catch (const Error& error) {
      const int64_t held_out = config_.training.test_batch_size;
      if (error.exit_code() != ExitCode::kOutOfMemory || held_out <= 1) throw;
      throw Error(error.exit_code(),
                  fmt::format("{}. The held-out loss takes test_batch_size: {} rows at once: "
                              "lower that too, or set it to auto_batch_size",
                              error.what(), held_out));
    }
  }

  /// What an earlier search has found in the same conditions. Collective.
  std::optional<BatchSizeDecision> known_decision(const fs::path& cached, const std::string& conditions) {
    if (conditions.empty()) return std::nullopt;
    int64_t batch = 0, largest = 0, fastest = 0;
    if (ranks_.communicator->is_root() && fs::exists(cached)) {
      const json found = json::parse(read_file(cached), nullptr, /*allow_exceptions=*/false);
      const auto number = [&](const char* name) {
        const bool is_there = found.contains(name) && found[name].is_number_integer();
        return is_there ? found[name].get<int64_t>() : 0;
      };
      if (found.is_object() && found.contains("conditions") && found["conditions"] == conditions) {
        batch = number("batch_size");
        largest = number("largest_that_fits");
        fastest = number("fastest");
      }
    }
    at::Tensor figures = at::tensor({batch, largest, fastest}, at::kLong);
    ranks_.communicator->broadcast(figures, 0);
    const int64_t* figure = figures.const_data_ptr<int64_t>();
    if (figure[0] < 1) return std::nullopt;
    BatchSizeDecision decision{};
    decision.batch = figure[0];
    decision.largest = figure[1];
    decision.fastest = figure[2];
    return decision;
  }

  RunConfig& config_;
  const Ranks& ranks_;
  const TrainingInputs& inputs_;
  Console& console_;
  MemoryMeter meter_;
  TrainingTrial trial_;
};

}  // namespace

bool find_batch_sizes(RunConfig& config, const Ranks& ranks, const TrainingInputs& inputs, Console& console,
                      const fs::path& report) {
  TrainingOptions& options = config.training;
  if (options.train_batch_size != kAutoBatchSize && options.test_batch_size != kAutoBatchSize) return false;
  const int64_t world_size = ranks.communicator->world_size();
  json all = json::object();
  bool written = false;
  const auto keep = [&](const char* key, const BatchSizeDecision& decision) {
    if (!ranks.communicator->is_root() || decision.trials.empty()) return;  // known from before
    all[key] = to_json(decision, world_size);
    written = write_for_people(console, [&] {
      draw(decision, key, report.string() + "." + key);
      write_file_atomically(report.string() + ".json", all.dump(2) + "\n");
    });
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
    keep(kTraining, decision);
  }
  if (options.test_batch_size == kAutoBatchSize) {
    if (inputs.held_out_windows() == nullptr) {
      options.test_batch_size = 1;  // no held-out loss is measured
    } else {
      const BatchSizeDecision decision = searches.find_held_out();
      options.test_batch_size = decision.batch;
      keep(kHeldOut, decision);
    }
  }
  return written;
}

}  // namespace adtrain
