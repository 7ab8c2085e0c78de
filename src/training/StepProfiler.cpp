#include "training/StepProfiler.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "base/File.h"
#include "base/Gpu.h"
#include "base/Host.h"
#include "telemetry/profile/ChromeTrace.h"
#include "telemetry/profile/Gzip.h"
#include "telemetry/profile/ProfileReport.h"
#include "watchdog/Activity.h"

namespace adtrain {
namespace {

/// Events of a trace: viewers open that many, and a file of it is about 15 MB.
constexpr int64_t kMostEvents = 1'000'000, kMostEventsOfRank = 200'000, kFewestEventsOfRank = 1'000;
constexpr size_t kConsoleRows = 15, kConsoleName = 48, kFileName = 160;

size_t most_events_of_each(size_t ranks) {
  return static_cast<size_t>(
      std::clamp(kMostEvents / static_cast<int64_t>(ranks), kFewestEventsOfRank, kMostEventsOfRank));
}

/// Rank `from`'s bytes on every rank. Collective.
std::string bytes_of_rank(Communicator& communicator, const std::string& bytes, int64_t from) {
  at::Tensor size = at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  communicator.broadcast(size, from);
  at::Tensor content = at::empty({size.item<int64_t>()}, at::kByte);
  if (communicator.rank() == from) std::ranges::copy(bytes, content.mutable_data_ptr<uint8_t>());
  communicator.broadcast(content, from);
  const auto* const first = reinterpret_cast<const char*>(content.const_data_ptr<uint8_t>());
  return {first, static_cast<size_t>(content.numel())};
}

std::string device_name(c10::Device device) {
  return device.is_cuda() ? visible_gpu(device.index()).name : "CPU";
}

}  // namespace

StepProfiler::StepProfiler(const ProfileOptions& options, Communicator& communicator, TrainingLog& log,
                           std::filesystem::path folder)
    : range_(options.range()),
      ranks_(range_ ? options.ranks_of(communicator.world_size()) : std::vector<int64_t>()),
      communicator_(communicator),
      log_(log),
      folder_(std::move(folder)) {}

void StepProfiler::begin_step(int64_t step) {
  if (!range_ || recorded_ || step + 1 < range_->first || step > range_->last) return;
  if (recording_) return mark(std::nullopt);
  Activity::of_this_process().begin("preparing the profile");
  // One step early: the first step under CUPTI is slow, as CUPTI prepares kernels and graphs in it.
  if (!recorder_ && records_here()) recorder_ = std::make_unique<EventRecorder>(communicator_.device());
  if (step >= range_->first) start();
  Activity::of_this_process().begin("training");
}

bool StepProfiler::records_here() const {
  return std::ranges::binary_search(ranks_, communicator_.rank());
}

void StepProfiler::start() {
  communicator_.synchronize();
  clock_ = ClockOffset::measure(communicator_);
  if (recorder_) recorder_->start();
  communicator_.barrier();  // no rank's first step waits for another's preparations
  recording_ = true;
  wall_.restart();
  marks_ = {{.step = std::nullopt, .start_ns = EventRecorder::now_ns(), .end_ns = 0}};
  marks_.back().end_ns = marks_.back().start_ns;
}

void StepProfiler::mark(std::optional<int64_t> step) {
  marks_.push_back({.step = step, .start_ns = marks_.back().end_ns, .end_ns = EventRecorder::now_ns()});
}

void StepProfiler::end_step(int64_t step, bool leaving) {
  if (!recording_) return;
  if (leaving || step == range_->last) return stop(step);
  mark(step);
}

void StepProfiler::stop(std::optional<int64_t> step) {
  communicator_.synchronize();
  mark(step);
  recording_ = false;
  recorded_ = true;
  wall_seconds_ = wall_.seconds();
  if (!recorder_) return;
  events_ = recorder_->stop();
  recorder_.reset();
}

std::string StepProfiler::own_part() {
  if (!records_here()) return "";
  const std::vector<StepWindow> windows = windows_of(events_, marks_);
  RankProfile profile;
  profile.rank = communicator_.rank();
  profile.host = host_name();
  profile.device = device_name(communicator_.device());
  profile.on_gpu = std::ranges::any_of(events_.events, &ProfileEvent::on_device);
  profile.wall_seconds = wall_seconds_;
  for (const StepWindow& window : windows) {
    if (window.step) {
      profile.steps.push_back(window);
    } else {
      profile.between_seconds += static_cast<double>(window.end_ns - window.start_ns) / 1e9;
    }
  }
  profile.table = operator_table(events_, windows);
  profile.left_out = keep_longest(events_.events, most_events_of_each(ranks_.size()));
  profile.events = static_cast<int64_t>(events_.events.size());
  const TraceRank row = {
      .rank = profile.rank,
      .title = fmt::format("rank {} · {} · {}", profile.rank, profile.host, profile.device),
      .origin_ns = clock_.root_ns + clock_.ahead_ns};
  const std::string header = profile.to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return gzipped(header + "\n" + trace_of_rank(row, events_, windows));
}

void StepProfiler::write(bool leaving) {
  if (recording_ && leaving) stop(std::nullopt);
  if (!recorded_ || marks_.empty()) return;
  Activity::of_this_process().begin("writing the profile");
  const std::string own = own_part();
  events_ = {};
  marks_.clear();
  std::vector<RankProfile> profiles;
  GzipText trace;
  trace.append(kTraceBegin);
  for (const int64_t rank : ranks_) {
    const std::string part = bytes_of_rank(communicator_, own, rank);
    if (!communicator_.is_root()) continue;
    const std::string text = gunzipped(part);
    const size_t header = text.find('\n');
    profiles.push_back(RankProfile::from(nlohmann::ordered_json::parse(text.substr(0, header))));
    trace.append(std::string_view(text).substr(header + 1));
  }
  if (!communicator_.is_root()) return;
  trace.append(kTraceEnd);
  write_files(profiles, trace.finish());
}

void StepProfiler::write_files(const std::vector<RankProfile>& ranks, const std::string& trace) {
  log_.lines(profile_text(ranks, kConsoleRows, kConsoleName));
  for (const RankProfile& rank : ranks) {
    if (communicator_.device().is_cuda() && !rank.on_gpu) {
      log_.notice(
          fmt::format("rank {}'s GPU has recorded nothing, so that its profile is of the host: CUPTI, "
                      "which records, does not work there; its message is further up",
                      rank.rank));
    }
  }
  const std::vector<StepWindow>& steps = ranks.front().steps;
  const auto path = [&](const char* ending) {
    return folder_ / fmt::format("steps_{}-{}{}", *steps.front().step, *steps.back().step, ending);
  };
  try {
    write_file_atomically(path(".txt"), profile_text(ranks, ranks.front().table.size(), kFileName));
    write_file_atomically(path(".json"), profile_json(ranks).dump(1) + "\n");
    write_file_atomically(path(".trace.json.gz"), trace);
    log_.lines(fmt::format(
        "profile: {} is the trace of {} rank{}, which https://ui.perfetto.dev and chrome://tracing "
        "open; the whole table is {}\n",
        path(".trace.json.gz").string(), ranks.size(), ranks.size() == 1 ? "" : "s", path(".txt").string()));
  } catch (const std::filesystem::filesystem_error& error) {
    log_.warn(fmt::format("the profile was not written and training continues: {}", error.what()));
  }
}

}  // namespace adtrain
