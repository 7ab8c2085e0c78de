#include "parallel/SlowRankMonitor.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/Host.h"
#include "collectives/Agreement.h"

namespace adtrain {
namespace {

/// On a GPU only the latest step before a report is known (see WaitTimer), which may be an odd one.
int64_t agreeing_windows(const at::Device& device) {
  return device.is_cuda() ? 3 : 2;
}

/// Of the time: where a thread has no core for longer than this, communication is slow for that alone.
constexpr double kShortOfCores = 0.10;

std::string place_of(const SlowRankEvidence& evidence, const at::Device& device) {
  if (!evidence.on_gpu) return evidence.host + ", on the CPU";
  return fmt::format("{}, GPU {}{}", evidence.host, static_cast<int>(device.index()),
                     evidence.gpu ? " at " + evidence.gpu->bus_id : "");
}

double load_of_host() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace

SlowRankMonitor::SlowRankMonitor(Communicator& communicator)
    : communicator_(communicator), watch_(agreeing_windows(communicator.device())) {}

void SlowRankMonitor::begin() {
  since_report_.restart();
}

SlowRankMonitor::News SlowRankMonitor::report(RankTimes mine) {
  News news;
  if (communicator_.world_size() == 1) return news;
  mine.total = since_report_.seconds();
  since_report_.restart();
  const at::Tensor all = communicator_.all_gather(
      at::tensor({mine.total, mine.waited, mine.agreeing, mine.data, mine.writing}, at::kDouble));
  std::vector<RankTimes> times;
  const auto rows = all.accessor<double, 2>();
  for (int64_t rank = 0; rank < communicator_.world_size(); ++rank) {
    const auto row = rows[rank];
    times.push_back(
        {.total = row[0], .waited = row[1], .agreeing = row[2], .data = row[3], .writing = row[4]});
  }
  // All ranks add the same figures, so that they come to the same turn.
  switch (watch_.add(times)) {
    case SlowRankWatch::Turn::kNone:
      for (SlowRank& slow : slow_ranks_) slow.lost_share = watch_.found().lost_share;
      break;
    case SlowRankWatch::Turn::kSuspicion:
      at_suspicion_ = CpuTimes::now();
      break;
    case SlowRankWatch::Turn::kBegins:
    case SlowRankWatch::Turn::kEnds:
      tell_what_ended(news);
      name_slow_ranks(news);
      name_communication(news);
      break;
  }
  return news;
}

void SlowRankMonitor::tell_what_ended(News& news) {
  const std::vector<int64_t>& now = watch_.found().slow_ranks;
  for (const SlowRank& slow : slow_ranks_) {
    if (std::find(now.begin(), now.end(), slow.rank) != now.end()) continue;
    news.notices.push_back(
        fmt::format("rank {} of {} no longer holds the others back", slow.rank, communicator_.world_size()));
  }
  slow_ranks_.clear();
  if (told_communication_ && watch_.found().communication_share == 0) {
    news.notices.push_back("communication no longer takes a large share of each step on all ranks");
  }
  told_communication_ = watch_.found().communication_share > 0;
}

void SlowRankMonitor::name_slow_ranks(News& news) {
  const PaceFinding& found = watch_.found();
  if (found.slow_ranks.empty()) return;
  SlowRankEvidence evidence = own_evidence();
  const std::vector<double> clocks =
      of_all(evidence.gpu ? static_cast<double>(evidence.gpu->sm_clock.value_or(0)) : 0);
  const auto is_slow = [&](int64_t rank) {
    return std::find(found.slow_ranks.begin(), found.slow_ranks.end(), rank) != found.slow_ranks.end();
  };
  for (size_t rank = 0; rank < clocks.size(); ++rank) {
    if (clocks[rank] > 0 && !is_slow(static_cast<int64_t>(rank))) {
      evidence.other_clocks.push_back(static_cast<int64_t>(clocks[rank]));
    }
  }
  SlowCauseFound mine;
  std::string sentence;
  if (is_slow(communicator_.rank())) {
    mine = find_cause(watch_.window(), static_cast<size_t>(communicator_.rank()), found.lost_share, evidence);
    sentence =
        fmt::format("rank {} of {} ({}) holds the others back, which wait for it in {:.0f}% of the time: {}",
                    communicator_.rank(), communicator_.world_size(),
                    place_of(evidence, communicator_.device()), 100 * found.lost_share, mine.text);
  }
  const std::vector<double> causes = of_all(static_cast<double>(mine.cause));
  const std::vector<std::string> sentences = gather_texts(communicator_, sentence);
  for (const int64_t rank : found.slow_ranks) {
    const auto index = static_cast<size_t>(rank);
    slow_ranks_.push_back({.rank = rank,
                           .lost_share = found.lost_share,
                           .cause = static_cast<SlowCause>(static_cast<int>(causes[index]))});
    news.warnings.push_back(sentences[index]);
  }
}

void SlowRankMonitor::name_communication(News& news) {
  const double share = watch_.found().communication_share;
  if (share == 0) return;
  const CpuUse cpu = at_suspicion_.until(CpuTimes::now());
  const std::vector<double> without_core = of_all(cpu.without_core.value_or(0) / cpu.seconds);
  const std::vector<std::string> names = gather_texts(communicator_, host_name());
  const size_t hosts = std::set<std::string>(names.begin(), names.end()).size();
  const auto short_of_cores = std::count_if(without_core.begin(), without_core.end(),
                                            [](double part) { return part > kShortOfCores; });
  const std::string ranks =
      fmt::format("{} ranks on {} host{}", communicator_.world_size(), hosts, hosts == 1 ? "" : "s");
  const std::string what = fmt::format(
      "no rank holds the others back, and each of {} waits for the gradients' sums in {:.0f}% of the time or "
      "more",
      ranks, 100 * share);
  if (short_of_cores > 0) {
    news.notices.push_back(
        fmt::format("{}: {} of them are short of cores; start fewer ranks, or end what else runs there", what,
                    short_of_cores));
    return;
  }
  news.notices.push_back(fmt::format(
      "{}: communication itself takes that long{}; see the bandwidth of adtrain test, and try larger "
      "batches, gradient_accumulation_steps or, on GPUs, gradient_wire_type: bf16",
      what, hosts > 1 ? ", over the network between hosts" : ""));
}

SlowRankEvidence SlowRankMonitor::own_evidence() const {
  SlowRankEvidence evidence;
  evidence.host = host_name();
  evidence.cpu = at_suspicion_.until(CpuTimes::now());
  evidence.load = load_of_host();
  evidence.cores = sysconf(_SC_NPROCESSORS_ONLN);
  const at::Device device = communicator_.device();
  evidence.on_gpu = device.is_cuda();
  if (!evidence.on_gpu) return evidence;
  evidence.gpu = Nvml().visible_gpu(device.index());
  if (evidence.gpu) evidence.others_on_gpu = other_processes(*evidence.gpu, getpid());
  return evidence;
}

std::vector<double> SlowRankMonitor::of_all(double mine) const {
  const at::Tensor all = communicator_.all_gather(at::full({1}, mine, at::kDouble)).contiguous();
  const double* const first = all.const_data_ptr<double>();
  return {first, first + all.numel()};
}

}  // namespace adtrain
