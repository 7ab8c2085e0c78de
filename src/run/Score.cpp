#include "run/Score.h"

#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Checksum.h"
#include "base/Clock.h"
#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "collectives/StopRequest.h"
#include "config/Reference.h"
#include "evaluation/scoring/MergedScores.h"
#include "evaluation/scoring/SampleBatches.h"
#include "evaluation/scoring/ScoreFolder.h"
#include "evaluation/scoring/Scoring.h"
#include "launch/StopCode.h"
#include "memory/AutoBatchSize.h"
#include "memory/BatchSizeSearch.h"
#include "memory/MemoryMeter.h"
#include "model/AlgorithmDistillation.h"
#include "run/LoadedNetwork.h"
#include "run/Ranks.h"
#include "run/ResultsFolder.h"
#include "run/RunConfig.h"
#include "run/ScoredHistories.h"
#include "run/SpreadNetwork.h"
#include "run/TrainedRun.h"
#include "run/throughput/MeasuredScoring.h"
#include "telemetry/Console.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kTasksShown = 32;

/// Of the first path, for a folder's name: "xland", or "xland-and-2-more" where the command line has several.
std::string name_of_histories(const ScoreRequest& request, const RunConfig& config) {
  const std::string text = scored_paths(config);
  fs::path first = request.histories.empty() ? text.substr(0, text.find(',')) : request.histories.front();
  if (first.filename().empty()) first = first.parent_path();
  std::string name = first.stem();
  std::erase_if(name,
                [](char letter) { return letter == '*' || letter == '?' || letter == '[' || letter == ']'; });
  if (name.empty()) name = "histories";  // of a pattern
  const size_t others = request.histories.empty() ? 0 : request.histories.size() - 1;
  return others == 0 ? name : fmt::format("{}-and-{}-more", name, others);
}

fs::path output_folder(const ScoreRequest& request, const RunConfig& config, const TrainedRun& trained,
                       int64_t step) {
  const auto weights = config.quantisation.weights();
  fs::path folder = trained.folder.scores() / fmt::format("{}-step-{}{}", name_of_histories(request, config),
                                                          step, weights ? "-" + weights->name() : "");
  if (config.scoring.score_output_dir) folder = *config.scoring.score_output_dir;
  if (request.shard.is_all()) return folder;
  return folder / fmt::format("part-{}-of-{}", request.shard.index, request.shard.count);
}

/// 16 hexadecimal digits that differ where names, shapes or values of weights differ.
std::string digest_of(AlgorithmDistillation& model) {
  std::string names;
  for (const NamedTensor& parameter : model.parameters().named_leaves())
    names += fmt::format("{} {}\n", parameter.name, c10::str(parameter.tensor.sizes()));
  const auto checksum_of = [](const at::Tensor& tensor) {
    const at::Tensor values = tensor.cpu();
    return checksum_text(checksum_by_threads(values.const_data_ptr(), values.nbytes()));
  };
  std::string of_values = checksum_of(model.parameters().flat());
  if (!model.parameters().is_quantised()) return checksum_text(names) + of_values;
  for (const auto& [name, leaf] : model.parameters().named_leaves()) {
    const QuantisedLinear* const linear = model.parameters().quantised(name);
    if (linear == nullptr) continue;  // it is in the flat tensor
    for (const at::Tensor& tensor : linear->matrix->tensors())
      if (tensor.defined()) of_values += checksum_of(tensor);
  }
  return checksum_text(names) + checksum_text(of_values);
}

/// Differs where a key of the network or the spaces that it is for do.
std::string network_digest(const RunConfig& config) {
  ModelOptions options = config.model;
  std::vector<Section> sections = {Section("Model")};
  options.declare(sections.front());
  std::string text = values_json(pointers_to(sections));
  const ModelShape shape = config.model_shape();
  text += fmt::format("\n{} {}", shape.grid_size, shape.num_actions);
  for (const TaskSpaces& spaces : shape.spaces) text += fmt::format("\n{}: {}", spaces.group, spaces.text());
  return checksum_text(text);
}

/// What must be the same for the same bits of scores, and the same tasks that are trained on.
ordered_json scored_with(const RunConfig& config, const std::string& device, at::ScalarType type,
                         const ScoredWindows& windows, const SampleBatches& batches) {
  ordered_json json = {{"network", config.model.architecture()},
                       {"network_digest", network_digest(config)},
                       {"histories_digest", windows.digest()},
                       {"device", device},
                       {"precision", precision_name(type)},
                       {"score_tasks", config.scoring.score_tasks},
                       {"score_stride", config.scoring.score_stride},
                       {"score_max_samples", nullptr},
                       {"score_batch", batches.rows()},
                       {"train_source_timesteps", config.data.train_source_timesteps},
                       {"train_n_stream", config.data.train_n_stream},
                       {"episode_stride", config.data.episode_stride}};
  if (config.scoring.score_max_samples) json["score_max_samples"] = *config.scoring.score_max_samples;
  for (const auto& [key, text] : config.quantisation.identity()) json[key] = text;
  if (!config.environment.has_own_tasks()) {
    json["env_split_seed"] = config.environment.split_seed();
    json["train_env_ratio"] = config.environment.train_ratio();
    json["train_tasks"] = nullptr;
    if (config.tasks.train_tasks) json["train_tasks"] = *config.tasks.train_tasks;
    return json;
  }
  json["window_margin"] = config.data.window_margin;
  json["last_fraction"] = config.data.last_fraction;
  json["reward_scale"] = config.data.reward_scale;
  return json;
}

/// What the samples of a batch have in steps.
int64_t steps_of_sample(const RunConfig& config) {
  return config.model.compressed() ? 2 * config.model.compress_interval : config.model.n_transit;
}

/// The batch of score_batch: auto: that of the number of samples, or on GPUs what fits of it, found by
/// trials. Collective.
int64_t found_batch(const RunConfig& config, AlgorithmDistillation& model, const ScoredWindows& windows,
                    const Ranks& ranks, Console& console) {
  const int64_t samples = SampleBatches(windows.size(), config.scoring.score_max_samples, 1).samples();
  const at::Device device = ranks.device.device;
  BatchSizeOptions options;
  options.largest = automatic_score_batch(samples, steps_of_sample(config), device.is_cuda());
  if (!device.is_cuda()) return options.largest;
  options.safety_margin = config.training.batch_size_safety_margin;
  options.log = [&](const std::string& sentence) { console.info("  " + sentence); };
  console.info("finding score_batch by trials of this scoring's own forward passes");
  MemoryMeter meter(device, config.training.cpu_memory_limit(), ranks.context.local_world_size);
  const auto forward = [&](int64_t batch) {
    Activity::of_this_process().begin("finding the batch size");
    const Stopwatch watch;
    Scoring(model, windows, SampleBatches(windows.size(), std::nullopt, batch)).try_batch(batch);
    meter.sample();
    return watch.seconds();
  };
  BatchSizeSearch search(*ranks.communicator, meter, options);
  if (search.still_fits(options.largest, forward)) return options.largest;
  return search.run(forward).batch;
}

constexpr const char* kOfScoring = "--set score_output_dir=FOLDER";  ///< chooses another folder

ResultsFolder results_folder(const fs::path& folder, const std::string& how_to_choose) {
  return {folder, "choose another folder by " + how_to_choose};
}

void show(const Scores& scores, Console& console) {
  const ScoreFigures figures = scores.figures();
  for (const std::string& line : figures.table(kTasksShown)) console.info("  " + line);
  if (figures.all.not_finite > 0) {
    console.warn(
        fmt::format("{} of {} losses are NaN or infinite: the weights are not usable, or the "
                    "histories hold numbers that training did not see",
                    figures.all.not_finite, figures.all.samples));
  }
}

/// The same where the network is spread over devices, which keep memory for it.
int64_t batch_on_map(const RunConfig& config, const ScoredWindows& windows, const SpreadNetwork& spread) {
  const int64_t samples = SampleBatches(windows.size(), config.scoring.score_max_samples, 1).samples();
  return spread.fitting_rows(automatic_score_batch(samples, steps_of_sample(config), spread.on_gpus()));
}

void report_speed(const ScoreRequest& request, const fs::path& folder, const ScoringSpeed& speed,
                  Console& console) {
  if (request.json) {
    print_answer(speed.json().dump(2) + "\n");
    return;
  }
  console.info(fmt::format("{} samples in {}, {:.1f} samples/s, at most {} in use; {}",
                           grouped(speed.samples), human_duration(speed.seconds()),
                           speed.samples_per_second(), human_bytes(static_cast<double>(speed.memory_peak)),
                           ScoringSpeed::file(folder).string()));
}

/// `notices`: for people, once the console is there; those of the configuration first. `spread`: whether over
/// the devices of device_map.
struct Way {
  bool spread = false;
  std::vector<std::string> notices;
};

ExitCode score_as_rank(const ScoreRequest& request, const TrainedRun& trained, const RunConfig& config,
                       const Way& way, const Ranks& ranks) {
  Communicator& communicator = *ranks.communicator;
  Console console = Console::for_process(communicator.is_root(), request.json ? stderr : stdout);
  const StopRequest stop;
  const bool on_gpus_of_map = way.spread && SpreadNetwork::takes_gpus(config);
  const at::ScalarType type =
      loaded_type(config, on_gpus_of_map ? at::Device(at::kCUDA) : ranks.device.device);
  const LoadedNetwork loaded = LoadedNetwork::of(config, trained, ranks, type, console);
  const auto& model = loaded.model;
  const int64_t step = loaded.step;
  // Before weights go to several devices, or come and go.
  const std::string digest = communicator.is_root() ? digest_of(*model) : "";
  const fs::path folder = output_folder(request, config, trained, step);
  refuse_to_overwrite(folder, request.overwrite || request.measured_seconds);
  const ResultsFolder results = results_folder(folder, kOfScoring);
  if (communicator.is_root()) results.check();
  const auto windows = scored_windows(config, trained.folder, ranks, console);
  std::optional<SpreadNetwork> spread;
  if (way.spread) spread.emplace(config, ranks, *model);
  int64_t batch = config.scoring.score_batch;
  if (batch == kAutoBatchSize) {
    batch = spread ? batch_on_map(config, *windows, *spread)
                   : found_batch(config, *model, *windows, ranks, console);
  }
  const SampleBatches batches(windows->size(), config.scoring.score_max_samples, batch);
  const NumberSpan own = NumberSpan{0, batches.batches()}.part(request.shard.index, request.shard.count);
  const NumberSpan places = batches.samples_in(own);
  if (spread) spread->place(batches.rows());
  const std::string device = spread                          ? spread->device_name()
                             : ranks.device.device.is_cuda() ? ranks.device.name
                                                             : "CPU";
  const Scoring scoring(*model, *windows, batches, spread ? &spread->network() : nullptr);
  console.banner(
      "Scoring, weights frozen",
      {{"checkpoint", fmt::format("step {} of {}", step, trained.folder.root.string())},
       {"histories", scored_paths(config)},
       {"windows",
        fmt::format("{}; tasks: {}", windows->description(), abridged(config.scoring.score_tasks))},
       {"samples", request.shard.is_all() ? grouped(batches.samples())
                                          : fmt::format("{} of {}, shard {}", grouped(places.size()),
                                                        grouped(batches.samples()), request.shard.text())},
       {"batches", fmt::format("{} of {} windows", grouped(own.size()), batches.rows())},
       {"processes", fmt::format("{}, {}", ranks.context.world_size, launcher_name(ranks.context.launcher))},
       {"device", device},
       {"precision", precision_name(type)},
       {"results", folder.string()}});
  for (const std::string& notice : way.notices) console.notice(notice);
  if (!loaded.weights.empty()) console.info("weights in " + loaded.weights);
  for (const std::string& warning : loaded.warnings) console.warn(warning);
  if (spread) spread->show(console);
  if (!ranks.device.notice.empty()) console.notice(ranks.device.notice);

  const auto stopped = [&] {
    console.info("stopped; nothing was written: the same command starts the scoring anew");
    if (communicator.is_root()) results.ask_for_requeue();
    return stop_code(ranks.context.launcher);
  };
  if (request.measured_seconds) {
    std::vector<at::Device> gpus;
    if (spread) gpus = spread->gpus_in_use();
    if (!spread && ranks.device.device.is_cuda()) gpus = {ranks.device.device};
    auto speed = MeasuredScoring{scoring, own, ranks, gpus}.speed(*request.measured_seconds, console);
    if (!speed) return stopped();
    speed->batch = batches.rows();
    speed->precision = precision_name(type);
    if (communicator.is_root()) {
      trained.refuse_if_replaced(folder);
      results.write([&] {
        speed->write(folder);
        results.forget_earlier_starts();
      });
      report_speed(request, folder, *speed, console);
    }
    return ExitCode::kDone;
  }

  Activity::of_this_process().begin("scoring");
  const Stopwatch watch;
  std::optional<ScoreTable> table;
  {
    Progress progress(console, "scoring", places.size(), "samples");
    table = scoring.run(
        own, communicator, ranks.cpu_threads,
        [&](int64_t done, int64_t) {
          progress.update(done, fmt::format("{:.0f} samples/s",
                                            static_cast<double>(done) / std::max(watch.seconds(), 1e-9)));
        },
        [] { return StopRequest::signal_number() != 0; });
  }
  if (!table) return stopped();
  if (!communicator.is_root()) return ExitCode::kDone;

  Scores scores;
  scores.scored = {{"checkpoint_step", step}, {"checkpoint_digest", digest}};
  scores.scored.update(scored_with(config, device, type, *windows, batches));
  scores.scored["loss"] = scoring.loss_names();
  scores.histories = scored_paths(config);
  scores.tasks = windows->tasks();
  scores.windows = batches.windows();
  scores.total = batches.samples();
  scores.shard = request.shard;
  scores.places = places;
  scores.table = std::move(*table);
  scores.seconds = watch.seconds();
  // Before anything is written: a disk that is full by now must not cost the figures, too.
  if (request.json) {
    print_answer(scores.summary().dump(2) + "\n");
  } else {
    show(scores, console);
  }
  trained.refuse_if_replaced(folder);
  results.write([&] {
    write_scores(folder, scores, request.overwrite);
    results.forget_earlier_starts();
  });
  console.info(fmt::format("{} samples in {}, {:.1f} samples/s; scores {}/scores.csv and .npy",
                           grouped(scores.table.size()), human_duration(scores.seconds),
                           static_cast<double>(scores.table.size()) / std::max(scores.seconds, 1e-9),
                           folder.string()));
  return ExitCode::kDone;
}

}  // namespace

ExitCode score(const ScoreRequest& request) {
  const TrainedRun trained = TrainedRun::at(request.target);
  Way way;
  RunConfig config =
      RunConfig::load(trained.folder.config(), with_names_of_scoring(request.overrides), way.notices);
  use_histories(config, request.histories);
  const fs::path folder = output_folder(request, config, trained, trained.named_step());
  refuse_to_overwrite(folder, request.overwrite || request.measured_seconds);
  way.spread = SpreadNetwork::is_wanted(config, way.notices);
  RunConfig of_ranks = config;
  if (way.spread) of_ranks.run.device = DeviceChoice::kCpu;  // the map takes the GPUs
  return as_one_of_the_ranks(
      of_ranks, [&](const Ranks& ranks) { return score_as_rank(request, trained, config, way, ranks); },
      results_folder(folder, kOfScoring).failure());
}

ExitCode merge(const MergeRequest& request) {
  refuse_to_overwrite(request.output, request.overwrite);
  const ResultsFolder results = results_folder(request.output, "--output");
  results.check();
  const Scores scores = merged_scores(request.parts);
  results.write([&] { write_scores(request.output, scores, request.overwrite); });
  if (request.json) {
    print_answer(scores.summary().dump(2) + "\n");
    return ExitCode::kDone;
  }
  Console console = Console::for_process(true);
  show(scores, console);
  console.info(fmt::format("Merged {} results of {} parts into {}", scores.table.size(), request.parts.size(),
                           request.output.string()));
  return ExitCode::kDone;
}

}  // namespace adtrain
