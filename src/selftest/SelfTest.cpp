#include "selftest/SelfTest.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Host.h"
#include "base/StandardStreams.h"
#include "base/Text.h"
#include "collectives/Agreement.h"
#include "config/Binder.h"
#include "config/Document.h"
#include "run/Ranks.h"
#include "run/RunConfig.h"
#include "selftest/CollectiveCheck.h"
#include "selftest/StepCheck.h"
#include "telemetry/Console.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr int64_t kKibibyte = 1 << 10;
constexpr int64_t kMebibyte = 1 << 20;
constexpr int64_t kSizes[] = {kKibibyte, 32 * kKibibyte, kMebibyte, 32 * kMebibyte, 256 * kMebibyte};
constexpr int64_t kLargestMebibytesOnCpu = 32;
constexpr int64_t kLargestMebibytesOnGpu = 256;
constexpr int64_t kBroadcastBytes = kMebibyte;

/// A model and timeouts that are small enough for a test; the user's overrides take precedence.
RunConfig config_of(const std::vector<std::string>& overrides) {
  RunConfig config;
  config.run.run_name = "self-test";  // the failure file is written to this run's folder
  config.model.tf_n_layer = 2;
  config.model.n_transit = 40;
  config.training.train_batch_size = 16;
  config.data.train_source_timesteps = 200;
  config.data.num_workers = 0;
  config.distributed.rendezvous_timeout_seconds = 60;
  config.distributed.collective_timeout_seconds = 60;
  Document document;
  for (const std::string& assignment : overrides) document.set(assignment);
  std::vector<Section> sections = config.sections();
  Binder(pointers_to(sections)).bind(document, [&config](Findings& findings) {
    config.environment.check(findings);
    config.model.check(findings);
    config.training.check(findings);
    config.distributed.check(findings);
  });
  return config;
}

std::string device_text(const Ranks& ranks) {
  if (!ranks.device.device.is_cuda()) {
    return fmt::format("CPU, {} thread{}", ranks.cpu_threads, ranks.cpu_threads == 1 ? "" : "s");
  }
  return fmt::format("{} ({})", ranks.device.name, ranks.device.device.str());
}

/// One entry per rank. Collective.
json whereabouts(const Ranks& ranks) {
  const json mine = {{"rank", ranks.context.rank},
                     {"host", host_name()},
                     {"local rank", ranks.context.local_rank},
                     {"device", device_text(ranks)}};
  json all = json::array();
  for (const std::string& text : gather_texts(*ranks.communicator, mine.dump())) {
    all.push_back(json::parse(text));
  }
  return all;
}

size_t hosts_among(const json& places) {
  std::set<std::string> hosts;
  for (const json& place : places) hosts.insert(place.at("host").get<std::string>());
  return hosts.size();
}

std::string counted(size_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

/// "12.3 µs", "4.56 ms", "1.23 s".
std::string short_duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string bandwidth_text(double bytes_a_second) {
  const bool slow = bytes_a_second < 1e9;
  return fmt::format("{:.3g} {}", bytes_a_second / (slow ? 1e6 : 1e9), slow ? "MB/s" : "GB/s");
}

/// The self test of one rank; rank 0 prints it.
class SelfTest {
 public:
  SelfTest(const RunConfig& config, const Ranks& ranks, const SelfTestRequest& request)
      : config_(config),
        ranks_(ranks),
        communicator_(*ranks.communicator),
        largest_bytes_(kMebibyte * request.largest_mebibytes.value_or(ranks.device.device.is_cuda()
                                                                          ? kLargestMebibytesOnGpu
                                                                          : kLargestMebibytesOnCpu)),
        json_(request.json && communicator_.is_root()),
        console_(Console::for_process(communicator_.is_root(), request.json ? stderr : stdout)) {}

  ExitCode run() {
    try {
      show_ranks();
      try_broadcast();
      for (const int64_t bytes : kSizes) {
        if (bytes <= largest_bytes_) try_all_reduce(bytes);
      }
      try_step();
    } catch (const Error& error) {
      faults_.push_back(fmt::format("{}: {}", doing_, error.what()));
      conclude();
      throw;
    }
    return conclude();
  }

 private:
  void begin(const std::string& what) {
    doing_ = what;
    Activity::of_this_process().begin("self test: " + what);
  }

  void show_ranks() {
    begin("who is where");
    const LaunchContext& context = ranks_.context;
    const json places = whereabouts(ranks_);
    hosts_ = hosts_among(places);
    report_["launcher"] = launcher_name(context.launcher);
    report_["evidence"] = context.evidence;
    report_["communication"] = communicator_.backend();
    report_["ranks"] = places;
    console_.banner("adtrain self test",
                    {{"launcher", fmt::format("{}: {}", launcher_name(context.launcher), context.evidence)},
                     {"communication", communicator_.backend()}});
    if (!ranks_.device.notice.empty()) console_.notice(ranks_.device.notice);
    console_.info(fmt::format("{:>6}  {:>5}  {:<24}  {}", "rank", "local", "host", "device"));
    for (const json& place : places) {
      console_.info(fmt::format("{:>6}  {:>5}  {:<24}  {}", place.at("rank").get<int64_t>(),
                                place.at("local rank").get<int64_t>(), place.at("host").get<std::string>(),
                                place.at("device").get<std::string>()));
    }
  }

  void try_broadcast() {
    begin("broadcast");
    const CollectiveFigures figures = check_broadcast(communicator_, kBroadcastBytes);
    report_["broadcast"] = {{"bytes", figures.bytes}, {"exact", figures.faults.empty()}};
    console_.info(fmt::format("broadcast of {} from every rank: {}", human_bytes(kBroadcastBytes),
                              judgement(figures.faults)));
    add_faults(figures.faults);
    console_.info("all-reduce, fp32 sums (algorithm = bytes / time; bus = algorithm · 2 (n − 1) / n)");
    console_.info(fmt::format("{:>12}  {:>12}  {:>14}  {:>14}", "size", "time", "algorithm", "bus"));
  }

  void try_all_reduce(int64_t bytes) {
    begin("all-reduce of " + human_bytes(static_cast<double>(bytes)));
    const CollectiveFigures figures = check_all_reduce(communicator_, bytes);
    json entry = {{"bytes", bytes}, {"exact", figures.faults.empty()}};
    std::string time = "-", algorithm = "-", bus = "-";
    if (communicator_.world_size() > 1) {  // a single rank sends nothing
      entry["seconds"] = figures.seconds;
      entry["algorithm bytes per second"] = figures.algorithm_bandwidth();
      entry["bus bytes per second"] = figures.bus_bandwidth(communicator_.world_size());
      time = short_duration(figures.seconds);
      algorithm = bandwidth_text(figures.algorithm_bandwidth());
      bus = bandwidth_text(figures.bus_bandwidth(communicator_.world_size()));
      fastest_bus_ = std::max(fastest_bus_, figures.bus_bandwidth(communicator_.world_size()));
    }
    report_["all-reduce"].push_back(entry);
    // µ takes two bytes and one column.
    console_.info(fmt::format("{:>12}  {:>{}}  {:>14}  {:>14}  {}", human_bytes(static_cast<double>(bytes)),
                              time, time.find("µ") == std::string::npos ? 12 : 13, algorithm, bus,
                              judgement(figures.faults)));
    add_faults(figures.faults);
  }

  void try_step() {
    begin("training step");
    const StepFigures figures = check_step(config_, communicator_);
    const std::vector<std::string> faults = figures.faults();
    report_["training step"] = {{"parameters", figures.parameters},
                                {"loss", figures.loss},
                                {"seconds", figures.seconds},
                                {"checksums", figures.checksums}};
    console_.info(fmt::format(
        "training step of a model with {} parameters: loss {:.4f}, {}; parameters {}",
        grouped(figures.parameters), figures.loss, short_duration(figures.seconds),
        faults.empty() ? "equal bit for bit, checksum " + figures.checksums.front() : judgement(faults)));
    add_faults(faults);
  }

  static std::string judgement(const std::vector<std::string>& faults) {
    return faults.empty() ? "exact" : "WRONG";
  }

  void add_faults(const std::vector<std::string>& faults) {
    for (const std::string& fault : faults) faults_.push_back(fmt::format("{}: {}", doing_, fault));
  }

  ExitCode conclude() {
    const bool passed = faults_.empty();
    report_["passed"] = passed;
    report_["faults"] = faults_;
    if (json_) print_answer(report_.dump(2) + "\n");
    const std::string who =
        fmt::format("{} on {}", counted(static_cast<size_t>(communicator_.world_size()), "rank"),
                    counted(hosts_, "host"));
    const std::string speed = fastest_bus_ > 0
                                  ? fmt::format(", {} of bus bandwidth by {}", bandwidth_text(fastest_bus_),
                                                communicator_.backend())
                                  : "";
    console_.info(passed ? fmt::format("self test PASSED: {}{}", who, speed)
                         : fmt::format("self test FAILED: {}: {}", who, join(faults_, "; ")));
    return passed ? ExitCode::kDone : ExitCode::kEnvironment;
  }

  const RunConfig& config_;
  const Ranks& ranks_;
  Communicator& communicator_;
  int64_t largest_bytes_;
  bool json_;
  Console console_;
  json report_;
  size_t hosts_ = 1;
  double fastest_bus_ = 0;
  std::string doing_;
  std::vector<std::string> faults_;
};

}  // namespace

ExitCode self_test(const SelfTestRequest& request) {
  const RunConfig config = config_of(request.overrides);
  bool met = false;
  try {
    return as_one_of_the_ranks(config, [&](const Ranks& ranks) {
      met = true;
      return SelfTest(config, ranks, request).run();
    });
  } catch (const EnvironmentError& error) {
    if (met) throw;
    throw EnvironmentError(fmt::format("self test FAILED at its start: {}", error.what()));
  }
}

}  // namespace adtrain
