#include "parallel/SlowRankCause.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/Text.h"

namespace adtrain {
namespace {

/// A cause must account for so much of what the others lose.
constexpr double kAccountsFor = 0.5;
/// A clock below this part of its maximum, and of the other ranks' clocks, is held down.
constexpr double kLowClock = 0.93;
/// The same where the other ranks' clocks are not known.
constexpr double kLowClockAlone = 0.8;
constexpr double kManyPagesASecond = 100;

template <class Value>
Value median(std::vector<Value> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string percent(double share) {
  return fmt::format("{:.0f}%", 100 * share);
}

/// Whether the rank's process, and not its GPU, arrives late: it waits less than the others' in the messages
/// that the processes exchange.
bool process_is_late(const std::vector<RankTimes>& times, size_t rank, double lost_share) {
  std::vector<double> others;
  for (size_t other = 0; other < times.size(); ++other) {
    if (other != rank) others.push_back(times[other].agreeing / times[other].total);
  }
  return times[rank].agreeing / times[rank].total + kAccountsFor * lost_share <= median(others);
}

SlowCauseFound cause_in_process(const RankTimes& times, double enough, const SlowRankEvidence& evidence) {
  const CpuUse& cpu = evidence.cpu;
  const double seconds = std::max(cpu.seconds, 1e-9);
  const double without_core = cpu.without_core.value_or(0) / seconds;
  if (without_core >= enough) {
    return {SlowCause::kCores,
            fmt::format("a thread of it was ready to run and had no core in {} of the time: other processes "
                        "take the cores of {} (load {:.1f} on {} cores), or a control group grants too few",
                        percent(without_core), evidence.host, evidence.load, evidence.cores)};
  }
  // Waiting may keep a core busy, and is then counted twice; a slow rank hardly waits.
  const double waits = (evidence.on_gpu ? times.agreeing : times.waited) + times.data + times.writing;
  const double asleep = 1 - cpu.on_core / seconds - waits / times.total;
  if (asleep < enough) return {};
  const double pages = static_cast<double>(cpu.pages_from_disk) / seconds;
  if (pages >= kManyPagesASecond) {
    return {SlowCause::kPaging,
            fmt::format("{:.0f} pages of its memory a second had to be read from disk: the memory of {} is "
                        "short; see vmstat 1 there",
                        pages, evidence.host)};
  }
  return {SlowCause::kPaused,
          fmt::format("in {} of the time its main thread neither computed nor waited for anybody: it slept, "
                      "or was stopped (SIGSTOP, a debugger, a frozen control group, a dead network disk)",
                      percent(asleep))};
}

SlowCauseFound cause_in_gpu(const SlowRankEvidence& evidence) {
  if (!evidence.gpu) return {};
  const GpuState& gpu = *evidence.gpu;
  if (gpu.sm_clock && gpu.max_sm_clock) {
    const auto clock = static_cast<double>(*gpu.sm_clock);
    const auto most = static_cast<double>(*gpu.max_sm_clock);
    const bool alone = evidence.other_clocks.empty();
    const bool low =
        alone ? clock < kLowClockAlone * most && !gpu.clock_limits.empty()
              : clock < kLowClock * std::min(most, static_cast<double>(median(evidence.other_clocks)));
    if (low) {
      std::vector<std::string> figures;
      if (gpu.power && gpu.power_limit) {
        figures.push_back(fmt::format("{:.0f} of {:.0f} W", *gpu.power, *gpu.power_limit));
      }
      if (gpu.temperature) figures.push_back(fmt::format("{} °C", *gpu.temperature));
      return {SlowCause::kGpuClock,
              fmt::format(
                  "its GPU's clock is {} MHz{} of at most {}{}{}: look at its cooling and power limit, "
                  "nvidia-smi -q -d PERFORMANCE,POWER,CLOCK -i {}",
                  *gpu.sm_clock,
                  alone ? "" : fmt::format(", where the other ranks' is {},", median(evidence.other_clocks)),
                  *gpu.max_sm_clock,
                  gpu.clock_limits.empty() ? "" : ", held down by " + join(gpu.clock_limits, " and "),
                  figures.empty() ? "" : " (" + join(figures, ", ") + ")", gpu.bus_id)};
    }
  }
  if (evidence.others_on_gpu.count() > 0) {
    return {SlowCause::kGpuShared, fmt::format("it shares its GPU: {}; see nvidia-smi -i {}",
                                               evidence.others_on_gpu.text(), gpu.bus_id)};
  }
  return {};
}

}  // namespace

const char* name_of(SlowCause cause) {
  switch (cause) {
    case SlowCause::kData:
      return "data";
    case SlowCause::kWriting:
      return "writing";
    case SlowCause::kCores:
      return "cores";
    case SlowCause::kPaging:
      return "paging";
    case SlowCause::kPaused:
      return "paused";
    case SlowCause::kGpuClock:
      return "gpu_clock";
    case SlowCause::kGpuShared:
      return "gpu_shared";
    case SlowCause::kUnknown:
      break;
  }
  return "unknown";
}

SlowCauseFound find_cause(const std::vector<RankTimes>& times, size_t rank, double lost_share,
                          const SlowRankEvidence& evidence) {
  const RankTimes& mine = times[rank];
  const double enough = kAccountsFor * lost_share;
  if (mine.data / mine.total >= enough) {
    return {SlowCause::kData,
            fmt::format("it waits for batches in {} of the time: more num_workers{}, or cores for them",
                        percent(mine.data / mine.total), evidence.on_gpu ? ", histories_on_gpu: on" : "")};
  }
  if (mine.writing / mine.total >= enough) {
    return {SlowCause::kWriting,
            fmt::format("it writes checkpoints and figures in {} of the time: a larger ckpt_interval or "
                        "summary_interval, or a faster file system for the run's folder",
                        percent(mine.writing / mine.total))};
  }
  // A GPU that waits for its process lowers its clock, so the process is asked first.
  SlowCauseFound found;
  const bool late = !evidence.on_gpu || process_is_late(times, rank, lost_share);
  if (late) found = cause_in_process(mine, enough, evidence);
  if (found.cause == SlowCause::kUnknown && evidence.on_gpu) found = cause_in_gpu(evidence);
  if (found.cause != SlowCause::kUnknown) return found;
  return {
      SlowCause::kUnknown,
      fmt::format("no cause can be seen there{}; compare {} with others (adtrain env, dmesg)",
                  late && evidence.on_gpu ? ", but its process is late, not its GPU" : "", evidence.host)};
}

}  // namespace adtrain
