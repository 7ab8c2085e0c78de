#include "run/sweep/Sweep.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Cores.h"
#include "base/File.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "base/WriteRemedy.h"
#include "launch/LaunchContext.h"
#include "run/LoadedNetwork.h"
#include "run/OverwrittenRun.h"
#include "run/RunLock.h"
#include "run/figures/Plot.h"
#include "run/figures/ReturnTable.h"
#include "run/own/HistoryPaths.h"
#include "run/sweep/SweepGrid.h"
#include "run/sweep/SweepRun.h"
#include "run/sweep/SweepRunner.h"
#include "run/sweep/SweepSlots.h"
#include "telemetry/Console.h"

namespace adtrain {
namespace {

namespace fs = std::filesystem;
using Status = SweepProgress::Status;

constexpr int64_t kMostSeeds = 10'000, kMostRanks = 1024;

void check_number(const char* option, int64_t number, int64_t most) {
  if (number >= 1 && number <= most) return;
  throw ConfigError(fmt::format("{}: found {}; expected 1 to {}", option, number, grouped(most)));
}

void check(const SweepRequest& request) {
  check_number("--nproc", request.ranks, kMostRanks);
  if (request.seeds) check_number("--seeds", *request.seeds, kMostSeeds);
  if (request.jobs) check_number("--jobs", *request.jobs, kMostRanks);
  const LaunchContext around = LaunchContext::detect();
  if (around.world_size > 1) {
    throw EnvironmentError(
        fmt::format("adtrain sweep starts all processes itself, and this is process {} of {} ({}); start it "
                    "once, and give each run several ranks by --nproc",
                    around.rank, around.world_size, around.evidence));
  }
}

const char* what_remains(SweepRun::Stage stage) {
  switch (stage) {
    case SweepRun::Stage::kToTrain:
      return "to train";
    case SweepRun::Stage::kToEvaluate:
      return "to evaluate";
    case SweepRun::Stage::kDone:
      return "done";
  }
  return "";
}

class Sweep {
 public:
  explicit Sweep(const SweepRequest& request)
      : request_(request), console_(Console::for_process(true, request.json ? stderr : stdout)) {
    const SweepGrid grid(request.assignments);
    std::vector<std::string> overrides = grid.first(), notices;
    if (request.name) overrides.push_back("run_name=" + nlohmann::json(*request.name).dump());
    const RunConfig first = RunConfig::load(request.config, overrides, notices);
    refuse_to_train_quantised(first);
    folder_ = first.folder().root;
    if (!request.name) folder_ += "-sweep";
    std::vector<int64_t> seeds;
    for (int64_t i = 0; i < request.seeds.value_or(0); ++i) seeds.push_back(first.training.seed + i);
    for (SweepPoint& point : grid.points(seeds))
      runs_.emplace_back(std::move(point), request.config, folder_);
  }

  /// Whether each run could begin, so that what is wrong with one is said before any has begun.
  void check_all() const {
    bool goes_on = false;  // with runs of an earlier start
    for (const SweepRun& run : runs_) {
      goes_on = goes_on || (!request_.overwrite && fs::exists(run.folder().state()));
      if (!request_.overwrite) static_cast<void>(run.stage());
      if (run.config().data.histories) {
        history_paths(run.config());
        continue;
      }
      if (fs::exists(run.config().history_file())) continue;
      std::string command = fmt::format("adtrain collect {}", request_.config.string());
      for (const std::string& setting : run.settings()) command += fmt::format(" --set '{}'", setting);
      throw DataError(fmt::format("{}, on which {} trains, does not exist; collect it first: {}",
                                  run.config().histories(), run.name(), command));
    }
    if (goes_on) check_ranks();
    if (request_.overwrite) check_overwritten();
  }

  void list() const {
    std::string text = fmt::format("{}: {} runs\n", folder_.string(), runs_.size());
    for (const SweepRun& run : runs_) {
      const auto stage = request_.overwrite ? SweepRun::Stage::kToTrain : run.stage();
      text += fmt::format("  {}: {}\n", run.name(), what_remains(stage));
    }
    print_answer(text);
  }

  ExitCode carry_out() {
    SweepRunner runner(runs_, {folder_ / "logs", request_.ranks}, console_);
    const bool on_gpus = std::ranges::any_of(
        runs_, [](const SweepRun& run) { return run.config().run.device != DeviceChoice::kCpu; });
    const SweepSlots slots = SweepSlots::of(on_gpus ? gpus_of_this_process() : std::vector<SweepGpu>(),
                                            usable_cores(), request_.ranks, std::ssize(runs_), request_.jobs);
    writing([&] { fs::create_directories(folder_ / "logs"); });
    const LaunchIdentity me = {"adtrain sweep", "", {ProcessIdentity::of_this_process()}};
    std::optional<RunLock> lock;
    writing([&] { lock.emplace(folder_ / "lock", me, request_.ranks); });
    if (request_.overwrite) writing([&] { begin_all_anew(me); });
    introduce(slots);
    runner.run(slots, [&] { record(runner); });
    return conclude(runner);
  }

 private:
  /// Deletes all runs before the first begins: when the sweep is interrupted, those that it has not reached
  /// must be neither taken for its own nor refused for their settings by the command that continues it.
  void begin_all_anew(const LaunchIdentity& me) const {
    std::vector<RunFolder> earlier;
    for (const SweepRun& run : runs_) {
      if (fs::exists(run.folder().root)) earlier.push_back(run.folder());
    }
    // All are looked at first, as nothing is to be deleted where a process trains in one of them.
    for (const RunFolder& folder : earlier) {
      const RunLock lock(folder.lock(), me, request_.ranks);
    }
    // Before the runs that they tell of, which they must not outlive.
    for (const char* name : {"returns.csv", "returns.pdf", "returns.png", "returns.svg"})
      fs::remove(folder_ / name);
    for (const RunFolder& folder : earlier) {
      {
        const RunLock lock(folder.lock(), me, request_.ranks);
        delete_run(folder);
      }
      std::error_code not_empty;  // where others have put something there
      if (!fs::is_symlink(folder.root)) fs::remove(folder.root, not_empty);
    }
  }

  /// Weights of one run may be those that another begins with.
  void check_overwritten() const {
    std::set<std::string> seen;
    for (const SweepRun& run : runs_) {
      const auto& init_from = run.config().training.init_from;
      if (!init_from || !seen.insert(*init_from).second) continue;
      for (const SweepRun& overwritten : runs_)
        refuse_overwritten_weights(run.config(), overwritten.folder());
    }
  }

  /// Without global_batch_size the number of ranks decides the global batch, which all runs are to share.
  void check_ranks() const {
    const fs::path record = folder_ / "sweep.json";
    if (runs_.front().config().training.global_batch_size || !fs::exists(record)) return;
    const auto earlier = nlohmann::json::parse(read_file(record), nullptr, /*allow_exceptions=*/false);
    const int64_t ranks = earlier.is_object() ? earlier.value("ranks", request_.ranks) : request_.ranks;
    if (ranks == request_.ranks) return;
    throw ConfigError(fmt::format(
        "--nproc: found {}, and runs of this sweep were started with {}; expected the same, as it "
        "decides the global batch: give --nproc {}, choose another sweep by --name, or set "
        "global_batch_size",
        request_.ranks, ranks, ranks));
  }

  template <class Action>
  void writing(const Action& action) const {
    try {
      action();
    } catch (const fs::filesystem_error& error) {
      throw EnvironmentError(
          fmt::format("{}; a sweep writes to {}: {}, or choose another folder by --set runs_dir=…",
                      error.what(), folder_.string(), write_remedy(error, folder_)));
    }
  }

  void introduce(const SweepSlots& slots) {
    const std::string at_once = fmt::format("{} at once", slots.count());
    console_.banner(
        "Sweep",
        {{"runs", fmt::format("{}, {}", runs_.size(),
                              slots.devices.front().empty()
                                  ? fmt::format("{} on the CPU, {} thread{} each", at_once, slots.threads,
                                                slots.threads == 1 ? "" : "s")
                                  : fmt::format("{}, GPUs {}", at_once, join(slots.devices, " | ")))},
         {"ranks of each", std::to_string(request_.ranks)},
         {"folder", folder_.string()},
         {"logs", (folder_ / "logs").string()}});
    if (!slots.left_out.empty()) {
      console_.notice(
          fmt::format("GPU {} left out: other processes compute there", join(slots.left_out, ", ")));
    }
  }

  std::vector<RecordedRun> done_runs(const SweepRunner& runner) const {
    std::vector<RecordedRun> runs;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runner.progress()[i].status == Status::kDone)
        runs.push_back(RecordedRun::open(runs_[i].folder().root));
    }
    return runs;
  }

  nlohmann::ordered_json json(const SweepRunner& runner) const {
    nlohmann::ordered_json list = nlohmann::json::array();
    for (size_t i = 0; i < runs_.size(); ++i) {
      const SweepProgress& progress = runner.progress()[i];
      list.push_back({{"name", runs_[i].name()},
                      {"folder", runs_[i].folder().root.string()},
                      {"settings", runs_[i].settings()},
                      {"status", name_of(progress.status)},
                      {"seconds", progress.seconds}});
      if (!progress.failure.empty()) list.back()["failure"] = progress.failure;
    }
    return {{"folder", folder_.string()},
            {"config", request_.config.string()},
            {"ranks", request_.ranks},
            {"runs", std::move(list)}};
  }

  /// The runs go on where there is no room for the record.
  void record(const SweepRunner& runner) {
    try {
      write_file_atomically(folder_ / "sweep.json", json(runner).dump(2) + "\n");
    } catch (const fs::filesystem_error& error) {
      if (!std::exchange(told_of_record_, true))
        console_.warn(fmt::format("{}; the sweep goes on", error.what()));
    }
  }

  ExitCode conclude(const SweepRunner& runner) {
    const std::vector<RecordedRun> done = done_runs(runner);
    nlohmann::ordered_json result = json(runner);
    if (!done.empty()) {
      FigureContent content;
      content.interval = request_.interval;
      const ReturnTable table = ReturnTable::of(done, content);
      const Figure figure = Figure::of(done, content);
      result["returns"] = table.json();
      writing([&] {
        write_file_atomically(folder_ / "sweep.json", result.dump(2) + "\n");
        write_file_atomically(folder_ / "returns.csv", table.csv());
        write_figure(figure, {}, {folder_ / "returns.pdf", folder_ / "returns.png", folder_ / "returns.svg"});
      });
      console_.info(fmt::format("in-context returns of {} runs, {}:", done.size(), figure.statistics()));
      for (const std::string& line : lines_of(table.text())) console_.info(line);
      for (const std::string& notice : figure.notices) console_.notice(notice);
      console_.info(fmt::format("figure {}, table {}", (folder_ / "returns.pdf").string(),
                                (folder_ / "returns.csv").string()));
    }
    if (request_.json) print_answer(result.dump(2) + "\n");
    return ending(runner, done.size());
  }

  ExitCode ending(const SweepRunner& runner, size_t done) {
    std::vector<std::string> failed;
    std::optional<ExitCode> code;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const SweepProgress& progress = runner.progress()[i];
      if (progress.status != Status::kFailed) continue;
      failed.push_back(runs_[i].name());
      if (!code) code = progress.exit_code;
    }
    if (!failed.empty()) {
      console_.warn(fmt::format("{} of {} runs failed: {}; what they said is in {}. {} tries them again",
                                failed.size(), runs_.size(), abridged(join(failed, ", "), 600),
                                (folder_ / "logs").string(), the_same_command()));
    }
    if (done + failed.size() < runs_.size()) {
      console_.info(fmt::format("stopped: {} of {} runs are done. {} continues", done, runs_.size(),
                                the_same_command()));
      return ExitCode::kRequeue;
    }
    return code.value_or(ExitCode::kDone);
  }

  const char* the_same_command() const {
    return request_.overwrite ? "The same command without --overwrite" : "The same command";
  }

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(text.substr(begin, end - begin));
    return lines;
  }

  const SweepRequest& request_;
  Console console_;
  fs::path folder_;
  std::vector<SweepRun> runs_;
  bool told_of_record_ = false;
};

}  // namespace

ExitCode sweep(const SweepRequest& request) {
  check(request);
  Sweep sweep(request);
  sweep.check_all();
  if (request.dry_run) {
    sweep.list();
    return ExitCode::kDone;
  }
  return sweep.carry_out();
}

}  // namespace adtrain
