#include "memory/BatchSizeSearch.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "watchdog/ForeignError.h"

namespace adtrain {
namespace {

constexpr double kNearlyTheBest = 0.98;  ///< of the best samples per second

BatchSizeOptions checked(BatchSizeOptions options) {
  const auto is_share = [](double value) { return value > 0 && value <= 1; };
  if (options.largest < 1 || (options.divides && *options.divides < 1) || !is_share(options.safety_margin) ||
      !is_share(options.reduction)) {
    throw std::invalid_argument(
        fmt::format("A batch size is searched up to {}, dividing {}, with a safety margin of {} and a "
                    "reduction of {}; expected whole numbers from 1 on, and shares above 0 and at most 1.",
                    options.largest, options.divides.value_or(1), options.safety_margin, options.reduction));
  }
  if (options.divides) options.largest = std::min(options.largest, *options.divides);
  return options;
}

int64_t largest_divisor(int64_t number, int64_t at_most) {
  int64_t divisor = std::min(number, at_most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

double samples_per_second(const BatchSizeTrial& trial, int64_t world_size) {
  return trial.seconds > 0 ? static_cast<double>(trial.batch * world_size) / trial.seconds : 0;
}

BatchSizeSearch::BatchSizeSearch(Communicator& communicator, MemoryMeter& meter, BatchSizeOptions options)
    : communicator_(communicator), meter_(meter), options_(checked(std::move(options))) {
  meter_.restart();
  const MemoryReading now = meter_.now();
  target_ = now.in_use + static_cast<int64_t>(options_.safety_margin * static_cast<double>(now.available()));
  describe_devices();
}

void BatchSizeSearch::tell(const std::string& sentence) const {
  if (options_.log && communicator_.is_root()) options_.log(sentence);
}

void BatchSizeSearch::describe_devices() {
  constexpr int64_t kFigures = 3;
  const MemoryReading now = meter_.now();
  at::Tensor mine = at::zeros({kFigures}, at::kLong);
  int64_t* figures = mine.mutable_data_ptr<int64_t>();
  figures[0] = now.total, figures[1] = now.in_use, figures[2] = target_;
  const at::Tensor all = communicator_.all_gather(mine);
  const int64_t* rows = all.const_data_ptr<int64_t>();
  const bool gpus = meter_.device().is_cuda();
  const char* device = gpus ? "GPU" : "CPU rank";
  int64_t total = 0, tightest = 0;
  tell(fmt::format("Found {} {}{}", communicator_.world_size(), device,
                   communicator_.world_size() == 1 ? "" : "s"));
  for (int64_t rank = 0; rank < communicator_.world_size(); ++rank) {
    const int64_t* row = rows + rank * kFigures;
    tell(fmt::format("{} {}: {} with {}, of which {} are in use", device, rank, meter_.name(),
                     gigabytes(row[0]), gigabytes(row[1])));
    total += row[0];
    if (row[2] - row[1] < rows[tightest * kFigures + 2] - rows[tightest * kFigures + 1]) tightest = rank;
  }
  tell(fmt::format("Total {} memory across all devices: {}", gpus ? "GPU" : "CPU", gigabytes(total)));
  tell(fmt::format(
      "Target memory usage (with {:.1f}% safety margin): {} on {} {}, which has the least left; every "
      "rank holds a whole model, so the tightest device decides",
      100 * options_.safety_margin, gigabytes(rows[tightest * kFigures + 2]), device, tightest));
}

bool BatchSizeSearch::still_fits(int64_t batch, const std::function<double(int64_t batch)>& trial) {
  const bool fit = fits("Known", batch, trial);
  trials_.clear();
  return fit;
}

BatchSizeDecision BatchSizeSearch::run(const std::function<double(int64_t batch)>& trial) {
  int64_t fitting = 0;
  int64_t failing = 0;  // 0: none yet
  for (int64_t batch = 1; failing == 0 && fitting < options_.largest;) {
    (fits("Power", batch, trial) ? fitting : failing) = batch;
    batch = std::min(2 * batch, options_.largest);
  }
  if (fitting == 0) {
    const BatchSizeTrial& only = trials_.front();
    throw Error(
        ExitCode::kOutOfMemory,
        fmt::format(
            "not even a batch of 1 fits: {}; expected at most {} in use. Make the model smaller or its "
            "context shorter, use mixed_precision: bf16, or free the memory that other processes use",
            only.refused ? "the device refused memory"
                         : gigabytes(only.peak_bytes) + " were in use at the peak",
            gigabytes(only.target_bytes)));
  }
  while (failing > fitting + 1) {
    const int64_t batch = next_between(fitting, failing);
    (fits("Binary search", batch, trial) ? fitting : failing) = batch;
  }
  return decide(fitting, failing != 0);
}

bool BatchSizeSearch::fits(const char* phase, int64_t batch, const std::function<double(int64_t)>& trial) {
  tell(fmt::format("{} phase - Trial {}: Testing batch size {}", phase, trials_.size() + 1, batch));
  const std::optional<double> predicted = predicted_headroom(batch);
  // A host that runs out of memory ends processes, and not only this one: only GPUs are asked for too much.
  const bool tries = meter_.device().is_cuda() || !predicted || *predicted >= 0;
  meter_.restart();
  double seconds = 0;
  bool refused = false;
  if (tries) {
    try {
      seconds = trial(batch);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      refused = true;
    }
  }
  const int64_t peak = tries ? meter_.peak() : target_ - static_cast<int64_t>(*predicted);
  meter_.restart();

  // What each rank has found, and then the worst of all ranks.
  at::Tensor worst = at::zeros({3}, at::kDouble);
  double* figures = worst.mutable_data_ptr<double>();
  figures[0] = refused ? 1 : 0;
  figures[1] = seconds;
  figures[2] = static_cast<double>(peak - target_);
  communicator_.all_reduce(worst, ReduceOp::kMax);
  const auto over = static_cast<int64_t>(figures[2]);
  // The peak and the target of the rank with the least left.
  at::Tensor target = at::full({1}, peak - target_ == over ? target_ : 0, at::kLong);
  communicator_.all_reduce(target, ReduceOp::kMax);

  BatchSizeTrial& made = trials_.emplace_back();
  made.batch = batch;
  made.predicted = !tries;
  made.refused = figures[0] > 0;
  made.fits = !made.refused && over <= 0;
  made.target_bytes = target.item<int64_t>();
  made.peak_bytes = made.target_bytes + over;
  made.seconds = made.refused ? 0 : figures[1];
  if (made.refused) {
    tell(fmt::format("Batch size {} needs more memory than there is", batch));
  } else {
    tell(fmt::format("Batch size {} {} {}{}", batch, tries ? "uses" : "would use", gigabytes(made.peak_bytes),
                     made.fits ? "" : ", more than the target"));
  }
  return made.fits;
}

std::optional<double> BatchSizeSearch::predicted_headroom(int64_t batch) const {
  const BatchSizeTrial* last = nullptr;
  const BatchSizeTrial* before = nullptr;
  for (const BatchSizeTrial& trial : trials_) {
    if (!trial.fits || (last != nullptr && trial.batch <= last->batch)) continue;
    before = last;
    last = &trial;
  }
  if (before == nullptr) return std::nullopt;
  const auto headroom = [](const BatchSizeTrial& trial) {
    return static_cast<double>(trial.target_bytes - trial.peak_bytes);
  };
  const double a_sample =
      (headroom(*before) - headroom(*last)) / static_cast<double>(last->batch - before->batch);
  return headroom(*last) - a_sample * static_cast<double>(batch - last->batch);
}

std::optional<double> BatchSizeSearch::headroom_at(int64_t batch) const {
  for (const BatchSizeTrial& trial : trials_) {
    if (trial.batch == batch && !trial.refused)
      return static_cast<double>(trial.target_bytes - trial.peak_bytes);
  }
  return predicted_headroom(batch);
}

int64_t BatchSizeSearch::next_between(int64_t fitting, int64_t failing) {
  const int64_t middle = fitting + (failing - fitting) / 2;
  const std::optional<double> here = headroom_at(fitting), there = headroom_at(failing);
  if (!here || !there || *there >= 0 || predictions_left_ == 0) return middle;
  --predictions_left_;
  const double end = *here / (*here - *there) * static_cast<double>(failing - fitting);
  return std::clamp(fitting + static_cast<int64_t>(end), fitting + 1, failing - 1);
}

int64_t BatchSizeSearch::allowed(int64_t batch) const {
  return options_.divides ? largest_divisor(*options_.divides, batch) : batch;
}

BatchSizeDecision BatchSizeSearch::decide(int64_t largest, bool limited_by_memory) const {
  BatchSizeDecision decision{};
  decision.largest = largest;
  decision.limited_by_memory = limited_by_memory;
  decision.trials = trials_;
  const int64_t safe =
      limited_by_memory
          ? std::max<int64_t>(1, static_cast<int64_t>(options_.reduction * static_cast<double>(largest)))
          : largest;
  double best = 0;
  for (const BatchSizeTrial& trial : trials_) {
    if (trial.fits && trial.batch <= safe) best = std::max(best, samples_per_second(trial, 1));
  }
  decision.fastest = safe;
  for (const BatchSizeTrial& trial : trials_) {
    const bool fast = trial.fits && samples_per_second(trial, 1) >= kNearlyTheBest * best;
    if (fast && trial.batch < decision.fastest) decision.fastest = trial.batch;
  }
  const bool fast = options_.prefer == BatchSizePreference::kThroughput;
  decision.batch = allowed(fast ? decision.fastest : safe);
  tell(fmt::format("Found optimal batch size: {}, using {} {}", largest, decision.batch,
                   fast                ? "for throughput"
                   : limited_by_memory ? "for safety"
                                       : "(the largest that may be tried)"));
  if (options_.divides && decision.batch < (fast ? decision.fastest : safe)) {
    tell(fmt::format("{} is the largest one up to {} that divides this rank's {} samples of a global batch",
                     decision.batch, fast ? decision.fastest : safe, *options_.divides));
  }
  if (decision.fastest < decision.batch) {
    tell(fmt::format("Batch size {} is as fast: within 2% of the most samples per second", decision.fastest));
  }
  return decision;
}

nlohmann::json to_json(const BatchSizeDecision& decision, int64_t world_size) {
  nlohmann::json trials = nlohmann::json::array();
  for (const BatchSizeTrial& trial : decision.trials) {
    trials.push_back({{"batch_size", trial.batch},
                      {"fits", trial.fits},
                      {"memory_refused", trial.refused},
                      {"peak_bytes", trial.peak_bytes},
                      {"target_bytes", trial.target_bytes},
                      {"predicted", trial.predicted},
                      {"seconds", trial.seconds},
                      {"samples_per_second", samples_per_second(trial, world_size)}});
  }
  return {{"batch_size", decision.batch}, {"largest_that_fits", decision.largest},
          {"fastest", decision.fastest},  {"limited_by_memory", decision.limited_by_memory},
          {"world_size", world_size},     {"trials", std::move(trials)}};
}

std::vector<std::string> table_of(const BatchSizeDecision& decision, int64_t world_size) {
  std::vector<BatchSizeTrial> trials = decision.trials;
  std::ranges::sort(trials, {}, &BatchSizeTrial::batch);
  std::vector<std::string> lines = {
      fmt::format("{:>10}  {:>10}  {:>10}  {:>12}  {}", "batch size", "peak GB", "ms", "samples/s", "")};
  for (const BatchSizeTrial& trial : trials) {
    const std::string verdict = trial.refused                   ? "out of memory"
                                : !trial.fits                   ? "above the target"
                                : trial.batch == decision.batch ? "used"
                                                                : "";
    lines.push_back(trial.refused
                        ? fmt::format("{:>10}  {:>10}  {:>10}  {:>12}  {}", trial.batch, "", "", "", verdict)
                        : fmt::format("{:>10}  {:>10.2f}  {:>10.2f}  {:>12.0f}  {}", trial.batch,
                                      static_cast<double>(trial.peak_bytes) / kBytesOfGigabyte,
                                      1000 * trial.seconds, samples_per_second(trial, world_size), verdict));
  }
  return lines;
}

}  // namespace adtrain
