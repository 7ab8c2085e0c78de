#include "collectives/Meeting.h"

#include "collectives/Rendezvous.h"
#include "collectives/mpi/MpiMeeting.h"

namespace adtrain {

std::unique_ptr<Meeting> Meeting::attend(const LaunchContext& context, const DistributedOptions& options,
                                         StartWatch& watch) {
  if (context.launcher == Launcher::kMpi) return std::make_unique<MpiMeeting>(context, options, watch);
  return std::make_unique<Rendezvous>(context, options, watch);
}

}  // namespace adtrain
