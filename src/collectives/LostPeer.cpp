#include "collectives/LostPeer.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

std::string described(const CollectiveCall& call) {
  const std::string size = call.bytes > 0 ? " of " + human_bytes(static_cast<double>(call.bytes)) : "";
  return fmt::format("rank {} of {} in {}{} over {}", call.rank, call.world_size, call.name, size,
                     call.backend);
}

}  // namespace

void throw_timed_out(const CollectiveCall& call, double timeout_seconds) {
  throw PeerLostError(
      fmt::format("A peer was lost: {} has waited {}, and not every rank came; look for the rank that failed "
                  "or hangs first, or raise collective_timeout_seconds (now {:g}) if a rank is only slow.",
                  described(call), human_duration(timeout_seconds), timeout_seconds));
}

void throw_lost_peer(const CollectiveCall& call, const std::string& reason) {
  throw PeerLostError(fmt::format(
      "A peer was lost: {} has failed ({}); look for the rank that ended first, its error is the cause.",
      described(call), reason));
}

}  // namespace adtrain
