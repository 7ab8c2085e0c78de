#include "run/throughput/Throughput.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Cores.h"
#include "base/File.h"
#include "base/HostMemory.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "evaluation/scoring/ScoringOptions.h"
#include "launch/LaunchContext.h"
#include "model/Parameters.h"
#include "run/LoadedNetwork.h"
#include "run/RunConfig.h"
#include "run/TrainedRun.h"
#include "run/sweep/SweepSlots.h"
#include "run/throughput/MeasuredScoring.h"
#include "run/throughput/RowProcesses.h"
#include "run/throughput/ThroughputRows.h"
#include "run/throughput/ThroughputTable.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;

void refuse_a_launcher() {
  const LaunchContext around = LaunchContext::detect();
  if (around.world_size == 1) return;
  throw EnvironmentError(fmt::format(
      "adtrain throughput starts all processes itself, and this is process {} of {} ({}); start it "
      "once, and say by --nproc how many ranks it compares",
      around.rank, around.world_size, around.evidence));
}

ThroughputMachine this_machine(const RunConfig& config) {
  ThroughputMachine machine;
  machine.cores = usable_cores();
  machine.memory = available_host_memory();
  if (config.run.device == DeviceChoice::kCpu) return machine;
  for (const SweepGpu& gpu : gpus_of_this_process()) machine.gpus.push_back(gpu.id);
  return machine;
}

/// Throws ConfigError where the settings of all rows, as they are written and with scoring's own names, say
/// what each row says itself.
void refuse_what_rows_say(const std::vector<std::string>& written, const std::vector<std::string>& settings) {
  for (size_t i = 0; i < settings.size(); ++i) {
    const auto expect = [&](const char* key, const char* why, const char* expected) {
      if (!settings[i].starts_with(std::string(key) + "=")) return;
      throw ConfigError(fmt::format("--set {}: {}; expected {}", written[i], why, expected));
    };
    expect("score_batch", "each row has a batch of its own", "--batch N for the row of fixed batches");
    expect("score_output_dir", "the scores of a row are not kept", "--output DIR for the table");
  }
}

class Throughput {
 public:
  explicit Throughput(const ThroughputRequest& request)
      : request_(request),
        trained_(TrainedRun::at(request.target)),
        console_(Console::for_process(true, request.json ? stderr : stdout)),
        folder_(request.output.value_or(trained_.folder.throughput())),
        overrides_(with_names_of_scoring(request.overrides)) {
    refuse_what_rows_say(request.overrides, overrides_);
    refuse_to_replace();
  }

  ExitCode carry_out() {
    std::vector<std::string> notices;
    const RunConfig config = RunConfig::load(trained_.folder.config(), overrides_, notices);
    // Before CUDA has threads.
    RowProcesses processes({.scored = scored(),
                            .peers = PeerProgram(request_.python.value_or("python3"), config),
                            .seconds = request_.seconds,
                            .folder = fs::absolute(folder_)});
    const ThroughputMachine machine = this_machine(config);
    ThroughputPlan plan;
    plan.batch = request_.batch;
    plan.processes = request_.processes;
    plan.rows = request_.rows;
    plan.peers = request_.python.has_value();
    plan.precision = precision_name(loaded_type(config, machine.gpus.empty() ? at::kCPU : at::kCUDA));
    plan.sets_threads = config.run.cpu_threads.has_value();
    plan.sets_map = config.placement.device_map.has_value();
    if (const auto limits = config.placement.limits()) {
      plan.limited_devices =
          std::ranges::count_if(limits->gpus, [](const auto& device) { return device.second > 0; });
    }
    if (const auto weights = config.quantisation.weights()) plan.quantised = weights->name();
    const std::vector<ThroughputRow> rows = throughput_rows(plan, machine);
    table_.run = fmt::format("step {} of {}", trained_.named_step(), trained_.folder.root.string());
    table_.histories = request_.histories;
    table_.settings = overrides_;
    table_.seconds = request_.seconds;
    fs::create_directories(folder_ / "logs");
    introduce(machine, plan.quantised, rows.size());
    for (size_t i = 0; i < rows.size() && !processes.stopping(); ++i) {
      console_.info(fmt::format("[{}/{}] {}{}", i + 1, rows.size(), rows[i].name,
                                rows[i].not_here.empty() ? "" : ": not here: " + rows[i].not_here));
      measure(rows[i], processes);
      if (!table_.results.empty()) write_table();
    }
    return conclude(processes.stopping());
  }

 private:
  fs::path results() const { return folder_ / "throughput.json"; }
  std::array<fs::path, 2> pictures() const {
    return {folder_ / "throughput.svg", folder_ / "throughput.png"};
  }

  /// Throws ConfigError where the folder holds a table that is not this command's own, as another command may
  /// have written by now, unless it is to be replaced.
  void refuse_to_replace() const {
    if (request_.overwrite || !fs::exists(results())) return;
    if (!written_.empty() && read_file(results()) == written_) return;
    throw ConfigError(fmt::format(
        "{} holds a throughput table already; choose another folder by --output, or replace it by "
        "--overwrite",
        folder_.string()));
  }

  /// Pictures of the table that this one replaces go first: a table may have none of its own.
  void write_table() {
    trained_.refuse_if_replaced(folder_);
    refuse_to_replace();
    for (const fs::path& picture : pictures()) fs::remove(picture);
    written_ = table_.json().dump(2) + "\n";
    write_file_atomically(results(), written_);
  }

  std::vector<std::string> scored() const {
    std::vector<std::string> words = {"score", request_.target.string()};
    words.insert(words.end(), request_.histories.begin(), request_.histories.end());
    for (const std::string& assignment : overrides_) words.insert(words.end(), {"--set", assignment});
    return words;
  }

  void introduce(const ThroughputMachine& machine, const std::string& weights, size_t rows) {
    console_.banner("Throughput of scoring, weights frozen",
                    {{"checkpoint", table_.run},
                     {"weights", weights.empty() ? "as the rows say" : "in " + weights},
                     {"rows", fmt::format("{}, {:g} s each after a warm-up of {:g} s", rows, request_.seconds,
                                          warm_up_seconds(request_.seconds))},
                     {"devices", machine.gpus.empty() ? fmt::format("the CPU, {} cores", machine.cores)
                                                      : "GPUs " + join(machine.gpus, ", ")},
                     {"results", folder_.string()}});
  }

  void measure(const ThroughputRow& row, RowProcesses& processes) {
    ThroughputResult result;
    result.row = row;
    result.because = row.not_here;
    if (row.not_here.empty()) {
      const RowProcesses::End end = processes.measure(row);
      if (processes.stopping()) return;
      result.because = end.because;
      result.failed = end.speeds.empty() && !end.is_missing;
      if (!end.speeds.empty()) result.speed = ScoringSpeed::together(end.speeds);
      if (result.speed && result.speed->samples == 0) {
        result.speed.reset();
        result.failed = true;
        result.because = fmt::format("no batch ended within {:g} s: raise --seconds", request_.seconds);
      }
      if (result.failed && code_ == ExitCode::kDone) code_ = end.speeds.empty() ? end.code : ExitCode::kUsage;
      console_.info(result.failed  ? "  failed: " + result.because
                    : result.speed ? fmt::format("  {:.1f} samples/s", result.speed->samples_per_second())
                                   : "  not here: " + result.because);
    }
    table_.results.push_back(std::move(result));
  }

  ExitCode conclude(bool stopped) {
    if (stopped && table_.results.empty()) {
      console_.info("stopped before a row was measured; the same command starts anew");
      return ExitCode::kRequeue;
    }
    const Chart chart = table_.chart();
    if (!chart.bars.empty()) {
      for (const fs::path& picture : pictures()) chart.draw(picture);
    }
    for (const std::string& line : table_.lines()) console_.info("  " + line);
    console_.info("memory peak: of the fullest GPU, by all processes there; on a CPU of the largest process");
    console_.info(
        fmt::format("table {}{}", results().string(),
                    chart.bars.empty() ? "" : fmt::format(", picture {}", pictures().front().string())));
    if (request_.json) print_answer(table_.json().dump(2) + "\n");
    if (stopped) {
      console_.info("stopped; what was measured until then is in the table, which --overwrite replaces");
      return ExitCode::kRequeue;
    }
    if (!chart.bars.empty()) return ExitCode::kDone;
    return code_ == ExitCode::kDone ? ExitCode::kEnvironment : code_;  // no row can be measured here
  }

  const ThroughputRequest& request_;
  TrainedRun trained_;
  Console console_;
  fs::path folder_;
  std::vector<std::string> overrides_;
  ThroughputTable table_;
  std::string written_;              ///< the file as this command has left it; empty before it has
  ExitCode code_ = ExitCode::kDone;  ///< of the first row that failed
};

}  // namespace

ExitCode throughput(const ThroughputRequest& request) {
  refuse_a_launcher();
  return Throughput(request).carry_out();
}

}  // namespace adtrain
