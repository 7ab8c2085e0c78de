#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/profile/StepParts.h"

namespace adtrain {

/// A trace in the JSON form of Chrome's Trace Event Format, which chrome://tracing and ui.perfetto.dev open:
/// begin, then the pieces of any number of ranks in any order, then end.
inline constexpr std::string_view kTraceBegin = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
inline constexpr std::string_view kTraceEnd = "{\"ph\":\"M\",\"name\":\"end\",\"pid\":0}\n]}\n";

/// Which process row a rank's piece makes, and where its time begins.
struct TraceRank {
  int64_t rank = 0;
  std::string title;      ///< "rank 0 · node3 · NVIDIA H200"
  int64_t origin_ns = 0;  ///< by this rank's clock: the trace's time 0
};

/// The piece of one rank, which ends with a comma: a row for the steps (and the work between them), one for
/// each stream and each thread.
std::string trace_of_rank(const TraceRank& rank, const ProfileEvents& recorded,
                          const std::vector<StepWindow>& windows);

/// Leaves the `most` longest events, in the order of their start. Returns how many it removed.
int64_t keep_longest(std::vector<ProfileEvent>& events, size_t most);

}  // namespace adtrain
